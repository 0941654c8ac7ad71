// SPDX-License-Identifier: Apache-2.0
// Tables that are sorted by a click on a heading.

/** `columns`: {name, value(row), show(row), text: sorted as text}. `sorted`: [column, downwards]. */
function table(caption, columns, rows, sorted, foot) {
  let [by, down] = sorted;
  const body = h("tbody");
  const heads = columns.map((column, i) => h("th", { scope: "col", class: column.text ? "text" : null },
    h("button", { type: "button", onclick: () => { down = by === i ? !down : !column.text; by = i; draw(); } }, column.name)));
  function draw() {
    const value = columns[by].value;
    const order = rows.slice().sort((a, b) => {
      const x = value(a), y = value(b), o = typeof x === "string" ? x.localeCompare(y, "en") : x - y;
      return down ? -o : o;
    });
    body.replaceChildren(...order.map((row) => h("tr", null, columns.map((c) => {
      const cell = c.show ? c.show(row) : c.value(row);
      return cell instanceof HTMLTableCellElement ? cell : h("td", { class: c.text ? "text" : null }, cell);
    }))));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === by ? (down ? "descending" : "ascending") : "none"));
  }
  draw();
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: "cards" }, h("thead", null, h("tr", null, heads)), body, foot && h("tfoot", null, foot)));
}

/** A kernel's name; the whole one on demand. */
function nameCell(row) {
  const short = row.name;
  return h("td", { class: "name" }, row.whole ? h("details", null, h("summary", null, short), row.whole) : short);
}

function kernels(data) {
  if (!data.rows.length) return h("p", { class: "note" }, "No kernels ran in the time that counts.");
  const share = (r) => r.ns / data.ns, most = share(data.rows[0]);
  const columns = [
    { name: "Kernel", text: true, value: (r) => r.name, show: nameCell },
    { name: "Time", value: (r) => r.ns, show: (r) => time(r.ns) },
    { name: "%", value: share, show: (r) => h("td", { class: "share" }, percent(r.ns, data.ns), h("span", { class: "meter", style: "width:" + Math.max(2, share(r) / most * 100) + "%" })) },
    { name: "Count", value: (r) => r.count, show: (r) => r.count.toLocaleString("en") },
    { name: "Avg", value: (r) => r.ns / r.count, show: (r) => time(r.ns / r.count) },
    { name: "Class", text: true, value: (r) => r.class },
  ];
  const rest = data.others.names > 0 && h("tr", null, h("td", { class: "text" }, many(data.others.names, "other kernel")), h("td", null, time(data.others.ns)),
    h("td", null, percent(data.others.ns, data.ns)), h("td", null, data.others.count.toLocaleString("en")), h("td"), h("td"));
  return table("Kernels", columns, data.rows, [1, true], rest);
}

function signed(v, words) { return (v > 0 ? "+" : v < 0 ? "−" : "") + words(Math.abs(v)); }

/** What of a step moved, and what is noise. */
function moved(legend, change) {
  const row = (name, key) => (f) => f && (f.a > 0 || f.b > 0) && h("tr", { class: f.moved ? null : "quiet" },
    h("td", { class: "text" }, key && h("span", { class: "key", style: "background:" + colour(key) }), name),
    h("td", null, time(f.a)), h("td", null, time(f.b)), h("td", null, signed(f.b - f.a, time)),
    h("td", null, f.band === null ? "" : "± " + time(f.band)), h("td", { class: "text" }, f.band === null ? "too few steps to say" : f.moved ? "moved" : "noise"));
  const head = ["A step", "A", "B", "B − A", "95%", ""];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What moved" }, h("table", { class: "cards" },
    h("thead", null, h("tr", null, head.map((t, i) => h("th", { scope: "col", class: i === 0 || i === 5 ? "text" : null }, t)))),
    h("tbody", null, row("Mean")(change.step), row("Median")(change.median), change.parts.map((f, i) => row(legend[i].name, legend[i].key)(f)), row("Not seen")(change.not_seen))));
}

function changedKernels(change) {
  if (!change.kernels.length) return h("p", { class: "note" }, "No kernel's time a step differs.");
  const by = (r) => r.ns[1] - r.ns[0];
  const count = (v) => v % 1 ? v.toFixed(1) : String(v);
  const columns = [
    { name: "Kernel", text: true, value: (r) => r.name, show: nameCell },
    { name: "A, a step", value: (r) => r.ns[0], show: (r) => time(r.ns[0]) },
    { name: "B, a step", value: (r) => r.ns[1], show: (r) => time(r.ns[1]) },
    { name: "B − A", value: (r) => Math.abs(by(r)), show: (r) => signed(by(r), time) },
    { name: "A, count", value: (r) => r.count[0], show: (r) => count(r.count[0]) },
    { name: "B, count", value: (r) => r.count[1], show: (r) => count(r.count[1]) },
  ];
  return h("div", null, table("Kernels that differ most", columns, change.kernels, [3, true]),
    change.kernels_left_out > 0 && h("p", { class: "note" }, many(change.kernels_left_out, "other kernel") + " differ less."));
}
