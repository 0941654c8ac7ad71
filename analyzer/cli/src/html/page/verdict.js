// SPDX-License-Identifier: Apache-2.0
// The verdict: sentence, certainty, what to change, what that promises, what to know before
// believing it.

function verdict(run, level, title) {
  const v = run.verdict;
  const sure = v.confidence === "high" ? "the evidence is direct" : v.confidence === "medium" ? "likely" : "maybe";
  const inconclusive = v.code === "GP199";
  const badges = v.code && h("p", { class: "badges" },
    h("span", { class: "badge" }, v.code),
    !inconclusive && h("span", { class: "badge" }, "confidence " + v.confidence), !inconclusive && h("span", { class: "soft" }, sure));
  return h("section", { "aria-label": title ? title + " verdict" : "Verdict" },
    title && h("p", { class: "soft" }, h("b", null, title), " ", run.file),
    badges,
    h(level, null, v.sentence || v.line),
    v.site && where(v),
    v.fix && h("p", { class: "fix" }, h("b", null, "What to change"), v.fix),
    v.or && h("p", { class: "fix" }, h("b", null, "Or (" + v.or.cause + ")"), v.or.fix),
    v.next && h("p", { class: "fix" }, h("b", null, "Next"), h("code", null, v.next)),
    numbers(v),
    h("div", null, h("b", null, "Evidence"), h("ul", { class: "rest" }, v.evidence.map((said) => h("li", null, said)))),
    remarks(run.remarks),
    findings(v));
}

/** The line to look at, and how the program came to it. */
function where(v) {
  const frames = v.stack.concat(v.stack_left_out ? ["and " + many(v.stack_left_out, "more frame")] : []);
  return h("div", { class: "fix where" }, h("b", null, "Where"), h("code", null, v.site),
    frames.length > 0 && h("details", null, h("summary", null, "Call stack, innermost first"), h("ol", null, frames.map((f) => h("li", null, h("code", null, f))))));
}

function remarks(all) {
  return all.length > 0 && h("div", { class: "remarks" }, h("b", null, "Before you believe it"), h("ul", null, all.map((r) => h("li", null, r))));
}

function numbers(v) {
  if (!v.step_ns) return null;
  const one = (value, what) => h("div", null, h("b", null, value), h("span", null, what));
  if (!v.predicted_ns) return h("div", { class: "numbers" }, one(time(v.step_ns), "a step"));
  const less = (1 - v.predicted_ns / v.step_ns) * 100;
  return h("div", { class: "numbers" },
    one(time(v.step_ns), "a step now"),
    one("about " + time(v.predicted_ns), "predicted, ± " + time(v.error_ns)),
    less > 0 && one("−" + less.toFixed(0) + "%", "of the step time"));
}

function findings(v) {
  if (!v.findings.length) return null;
  // what they are ordered by, where recording slowed the host
  const both = v.findings.some((f) => Math.abs(f.unrecorded_win - f.win) >= 0.005);
  const row = (f) => h("tr", null,
    h("td", { class: "text" }, f.code + " " + f.cause), h("td", null, percent(f.share, 1)), h("td", null, percent(f.win, 1)),
    both && h("td", null, percent(f.unrecorded_win, 1)), h("td", { class: "text" }, f.confidence), h("td", { class: "name" }, f.text, f.text && f.fix ? ". " : "", f.fix));
  const figures = ["Lost to it", "A fix wins"].concat(both ? ["… of a step not recorded"] : []);
  const head = ["Cause", ...figures, "Confidence", "Seen by, and what to change"];
  return h("details", null, h("summary", null, "All causes there is evidence of (" + v.findings.length + ")"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All causes" }, h("table", null,
      h("thead", null, h("tr", null, head.map((t, i) => h("th", { scope: "col", class: i >= 1 && i <= figures.length ? null : "text" }, t)))),
      h("tbody", null, v.findings.map(row)))));
}
