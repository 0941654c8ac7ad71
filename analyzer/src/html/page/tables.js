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
    { name: "Average", value: (r) => r.ns / r.count, show: (r) => time(r.ns / r.count) },
    { name: "Class", text: true, value: (r) => r.class },
  ];
  const rest = data.others.names > 0 && h("tr", null, h("td", { class: "text" }, many(data.others.names, "other kernel")), h("td", null, time(data.others.ns)),
    h("td", null, percent(data.others.ns, data.ns)), h("td", null, data.others.count.toLocaleString("en")), h("td"), h("td"));
  return table("Kernels", columns, data.rows, [1, true], rest);
}

function changedKernels(change) {
  if (!change.kernels) return null;
  if (!change.kernels.length) return h("p", { class: "note" }, "No kernel's time a step changed.");
  const by = (r) => r.ns[1] - r.ns[0];
  const sign = (v, words) => (v > 0 ? "+" : v < 0 ? "−" : "") + words(Math.abs(v));
  const count = (v) => v % 1 ? v.toFixed(1) : String(v);
  const columns = [
    { name: "Kernel", text: true, value: (r) => r.name, show: nameCell },
    { name: "Before, a step", value: (r) => r.ns[0], show: (r) => time(r.ns[0]) },
    { name: "After, a step", value: (r) => r.ns[1], show: (r) => time(r.ns[1]) },
    { name: "Change", value: (r) => Math.abs(by(r)), show: (r) => sign(by(r), time) },
    { name: "Calls before", value: (r) => r.count[0], show: (r) => count(r.count[0]) },
    { name: "Calls after", value: (r) => r.count[1], show: (r) => count(r.count[1]) },
  ];
  return h("div", null, h("h3", null, "Kernels that changed most"), table("Kernels that changed most", columns, change.kernels, [3, true]),
    change.kernels_left_out > 0 && h("p", { class: "note" }, many(change.kernels_left_out, "other kernel") + " changed less."));
}
