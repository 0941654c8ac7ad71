// SPDX-License-Identifier: Apache-2.0
// The page from the figures.

const figures = JSON.parse(document.getElementById("figures").textContent);
const legend = figures.buckets, classes = figures.classes, runs = figures.runs;
const main = document.getElementById("main");

function section(title, note, ...parts) {
  return h("section", { "aria-label": title }, h("h2", null, title), note && h("p", { class: "note" }, note), parts);
}

function details(run) {
  const d = run.device;
  if (!d) return [section("Nothing to draw", "No GPU operation that a step or a share of time could be taken from.")];
  const gpu = "GPU " + d.ordinal + (d.name ? " (" + d.name + ")" : "") + (d.of > 1 ? ", the worst of " + d.of : "");
  const t = d.timeline, f = d.idle_by_range, work = d.gpu_time, st = d.steps;
  const left_out = (tree) => (tree.nodes_left_out ? " " + many(tree.nodes_left_out, "frame") + " below " + time(tree.left_out_below_ns) + " left out." : "");
  const many_bars = st && st.bars.some((b) => b.steps > 1);
  return [
    section("Where the time went", gpu + ": all of " + time(d.wall_ns) + " that count" + (st && st.warm_up ? " (" + many(st.warm_up, "warm-up step") + ", " + time(st.warm_up_ns) + ", left out)" : "") + ".", bucketBar(legend, d),
      d.gauges.map((g) => h("p", { class: "note" }, g))),
    d.phases && section("Phases of a step", "How much of the GPU's time each has: its work, and what the GPU idled while the host was in it.", phases(d.phases)),
    t && section(t.step === null ? "A part of the run in detail" : "Step " + t.step + " in detail",
      (t.step === null ? "No steps were found: this is the middle of the run. "
        : t.rare ? "What idles the GPU most (" + legend[t.rare.bucket].name.toLowerCase() + ") is in " + many(t.rare.steps, "step") + " of " + (st.count - st.warm_up) + ": the middle one of these. The step nearest to the median shows nothing of it. "
        : "The steady step nearest to the median. ") + time(t.length_ns) + ".", timeline(legend, t)),
    st ? section("Every step", many(st.count, "step") + (st.warm_up ? ", " + st.warm_up + " of them warm-up" : "") + "; mean " + time(st.mean_ns) + ", median " + time(st.median_ns) + ", 90% below " + time(st.p90_ns)
      + (many_bars ? ". There are more steps than bars: a bar is the mean of neighbours" : "") + ".", perStep(legend, st), keys(legend, sums(st.bars.map((b) => b.parts))))
      : section("Every step", "No steps were found in this run."),
    h("div", { class: "two" },
      section("Lengths of gaps", many(d.gaps.count, "gap") + " in which the GPU ran nothing.", histogram(legend, d.gaps, "gap")),
      section("Lengths of kernels", many(d.durations.count, "kernel") + ".", histogram(legend, d.durations, "kernel", colour("compute")))),
    f ? section("Idle time by where the program was", "Ranges, operators and Python functions around the call that is to blame; click to look closer. " + percent(f.in_ranges_ns, f.root.ns) + " of the idle time has such a place."
      + left_out(f), flame(legend, "bucket", "Idle time by range", "the idle time", f))
      : section("Idle time by where the program was", "Not known: no blamed call was made inside a named range. Mark ranges (NVTX, record_function, gapprobe.range), or record operators or stacks with torch.profiler."),
    work && section("GPU time by what launched it", "Kernels, copies and memsets under the ranges, functions, modules and operators that launched them; those of a backward pass under the functions of its forward pass. Click to look closer. "
      + (work.known_ns ? percent(work.known_ns, work.root.ns) + " of the time has such a place." : "Of this run only their threads are known.") + " Operations that overlap add up." + left_out(work),
      flame(classes, "class", "GPU time by what launched it", "the GPU's time", work), keys(classes, work.parts)),
    section("Kernels", "By time on " + gpu.split(" (")[0] + ", in the time that counts" + (d.kernels.others.names ? "; the first " + d.kernels.rows.length + " of " + d.kernels.names + " names" : "") + ". A click on a name shows all of it.", kernels(d.kernels)),
  ];
}

function compared() {
  const c = figures.change;
  return [
    h("section", { "aria-label": "Before and after" },
      h("h1", null, capital(c.line)),
      remarks(c.cautions), c.remarks.length > 0 && h("p", { class: "rest" }, capital(c.remarks.join("; ")) + "."),
      sideBySide(legend, c, runs.map((r) => r.file)), c.parts && moved(legend, c)),
    h("div", { class: "two" }, verdict(runs[0], "h2", "A, before:"), verdict(runs[1], "h2", "B, after:")),
    c.kernels && section("Kernels that differ most", "Time on the GPU of one step; a few percent are what two runs of one program differ by.", changedKernels(c)),
  ].filter(Boolean);
}

const below = h("div");
if (runs.length > 1) {
  const pick = (i) => {
    buttons.forEach((b, k) => b.setAttribute("aria-pressed", String(k === i)));
    below.replaceChildren(...details(runs[i]).filter(Boolean));
  };
  const buttons = runs.map((r, i) => h("button", { type: "button", onclick: () => pick(i) }, (i ? "B: " : "A: ") + r.file));
  main.replaceChildren(...compared(), h("div", { class: "tools card", role: "group", "aria-label": "Which run is shown below" }, h("span", null, "In detail:"), buttons), below);
  pick(1);
} else {
  main.replaceChildren(verdict(runs[0], "h1"), below);
  below.replaceChildren(...details(runs[0]).filter(Boolean));
}
document.getElementById("foot").append(
  h("p", null, "Made by gapprobe " + figures.gapprobe + " from " + runs.map((r) => r.file + " (" + r.format + ")").join(" and ") + ". Times of the GPU that idled most."),
  ...runs.map((r) => h("p", { class: "line" }, r.verdict.line)));
