// SPDX-License-Identifier: Apache-2.0
// One step: rows of streams, idle time and threads on a canvas; zoomed and moved by wheel, drag,
// touch and keys.

const CALLS = { launch: "launch", copy: "copy_wait", blocking: "sync", allocation: "alloc", other: "kernel_gap" };

/** Rows as the canvas draws them: every item {start, ns, key of its colour, text, lines of the tip}.
 */
function rowsOf(legend, data) {
  const span = data.length_ns;
  const slice = (key) => ([start, ns, name, kind, count, inside]) => {
    const one = count === 1;
    return { start, ns, key: key(kind), text: data.names[name], lines: [
      one ? data.names[name] : count + " in one, the longest: " + data.names[name],
      "begins at " + moment(start, span, 3) + ", lasts " + time(ns), one ? "" : "time in them: " + time(inside)] };
  };
  const rows = data.streams.map((r) => ({ name: r.name + ": " + many(r.count, "operation"), items: r.items.map(slice((k) => legend[k].key)) }));
  rows.push({ name: "Why idle", items: data.idle.map(([start, ns, bucket, call]) => ({
    start, ns, key: legend[bucket].key, text: legend[bucket].name, lines: [
      legend[bucket].name + ": " + legend[bucket].what, "begins at " + moment(start, span, 3) + ", lasts " + time(ns),
      call === null ? "" : "blamed call: " + data.names[call]] })) });
  return rows.concat(data.threads.map((r) => ({ name: r.name + ": " + many(r.count, "call"), items: r.items.map(slice((k) => CALLS[data.call_kinds[k]])) })));
}

function timeline(legend, data) {
  const rows = rowsOf(legend, data), whole = data.length_ns;
  const least = Math.max(200, whole / 1e9); // closer, numbers have no places left
  const ROW = 22, NAME = 18, AXIS = 22, height = AXIS + rows.length * (ROW + NAME) + 6;
  const canvas = h("canvas", { tabindex: 0, role: "img", style: "height:" + height + "px",
    "aria-label": "Timeline of " + (data.step === null ? "a part of the run" : "step " + data.step) + ", " + time(whole) + ": " + rows.map((r) => r.name).join("; ")
      + ". Plus and minus zoom, left and right move, up and down choose a row, comma and full stop the item before and after." });
  const picked = h("p", { class: "picked", "aria-live": "polite" }, "A click on something says what it is.");
  const pen = canvas.getContext("2d");
  let from = 0, to = whole, width = 0, chosen = { row: 0, item: -1 }, waiting = false;
  const x = (ns) => (ns - from) / (to - from) * width;
  const top = (row) => AXIS + row * (ROW + NAME) + NAME;

  function draw() {
    waiting = false;
    if (!width) return;
    const dots = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue("--" + name).trim();
    const paints = new Map(legend.map((b) => [b.key, get(b.key)]));
    canvas.width = width * dots; canvas.height = height * dots;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
    const soft = get("soft"), line = get("line"), text = get("text"), onFill = get("on-fill");
    const step = round((to - from) / Math.max(2, width / 120));
    for (let t = Math.ceil(from / step) * step; t < to; t += step) {
      pen.fillStyle = line; pen.fillRect(x(t), 0, 1, height);
      pen.fillStyle = soft; if (x(t) < width - 50) pen.fillText(moment(t, to - from), x(t) + 4, AXIS / 2);
    }
    rows.forEach((row, r) => {
      pen.fillStyle = get("card"); pen.fillRect(0, top(r) - NAME + 1, Math.min(width, pen.measureText(row.name).width + 12), NAME - 2);
      pen.fillStyle = text; pen.fillText(row.name, 6, top(r) - NAME / 2);
      for (const item of row.items) {
        if (item.start > to) break;
        if (item.start + item.ns < from) continue;
        const left = Math.max(-1, x(item.start)), right = Math.min(width + 1, x(item.start + item.ns));
        const wide = Math.max(0.8, right - left - (right - left > 4 ? 0.6 : 0));
        pen.fillStyle = paints.get(item.key); pen.fillRect(left, top(r), wide, ROW - 2);
        if (wide > 34) {
          pen.save(); pen.beginPath(); pen.rect(left, top(r), wide - 3, ROW); pen.clip();
          pen.fillStyle = onFill; pen.fillText(item.text, Math.max(left, 0) + 4, top(r) + ROW / 2 - 1); pen.restore();
        }
      }
    });
    const item = rows[chosen.row] && rows[chosen.row].items[chosen.item];
    if (item) {
      pen.strokeStyle = text; pen.lineWidth = 2;
      pen.strokeRect(x(item.start) - 1, top(chosen.row) - 1, Math.max(3, x(item.start + item.ns) - x(item.start)) + 2, ROW);
    }
  }
  function redraw() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }
  function view(a, b) {
    const span = Math.min(whole, Math.max(least, b - a));
    from = Math.min(Math.max(0, a), whole - span); to = from + span;
    redraw();
  }
  function zoom(factor, at) {
    const fixed = from + (to - from) * at;
    view(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
  }
  const move = (part) => view(from + (to - from) * part, to + (to - from) * part);
  function choose(row, item) {
    chosen = { row, item };
    const it = rows[row].items[item];
    if (it) {
      if (it.start + it.ns < from || it.start > to) { const span = to - from; view(it.start + it.ns / 2 - span / 2, it.start + it.ns / 2 + span / 2); }
      picked.textContent = rows[row].name + ". " + it.lines.filter(Boolean).join("; ");
    } else {
      picked.textContent = rows[row].name;
    }
    redraw();
  }
  function under(e) {
    const box = canvas.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
    const row = Math.floor((py - AXIS) / (ROW + NAME));
    if (!rows[row] || py < top(row) - 2) return null;
    let best = -1, near = 4;
    rows[row].items.forEach((item, i) => {
      const a = x(item.start), b = x(item.start + item.ns), off = px < a ? a - px : px > b ? px - b : 0;
      if (off < near || (off === 0 && near === 0)) { near = off; best = i; }
    });
    return best < 0 ? null : { row, item: best };
  }

  const fingers = new Map();
  let dragged = 0;
  canvas.addEventListener("pointerdown", (e) => { fingers.set(e.pointerId, e); dragged = 0; canvas.setPointerCapture(e.pointerId); canvas.style.cursor = "grabbing"; });
  canvas.addEventListener("pointermove", (e) => {
    const before = fingers.get(e.pointerId);
    if (!before) {
      const at = under(e);
      return tip(at && rows[at.row].items[at.item].lines, e.clientX, e.clientY);
    }
    tip(null);
    const shift = e.clientX - before.clientX;
    if (fingers.size === 1) {
      dragged += Math.abs(shift);
      move(-shift / width);
    } else {
      const other = [...fingers.values()].find((f) => f.pointerId !== e.pointerId);
      const was = Math.abs(before.clientX - other.clientX), is = Math.abs(e.clientX - other.clientX);
      const middle = ((e.clientX + other.clientX) / 2 - canvas.getBoundingClientRect().left) / width;
      if (was > 10 && is > 10) zoom(was / is, middle);
      dragged = 99;
    }
    fingers.set(e.pointerId, e);
  });
  const lift = (e) => {
    if (e.type === "pointerup" && dragged < 5) { const at = under(e); if (at) choose(at.row, at.item); }
    fingers.delete(e.pointerId); canvas.style.cursor = "";
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => tip(null));
  canvas.addEventListener("dblclick", (e) => {
    const at = under(e);
    if (at) { const item = rows[at.row].items[at.item]; view(item.start - item.ns * 0.3, item.start + item.ns * 1.3); }
  });
  // the page scrolls as ever until the timeline is chosen
  canvas.addEventListener("wheel", (e) => {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    if (!sideways && !e.ctrlKey && !e.metaKey && document.activeElement !== canvas) return;
    e.preventDefault(); tip(null);
    if (sideways) move((e.deltaX || e.deltaY) / width);
    else zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * 0.003))), (e.clientX - canvas.getBoundingClientRect().left) / width);
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    const items = rows[chosen.row].items.length;
    const other = (row) => {
      const r = Math.max(0, Math.min(rows.length - 1, row)), all = rows[r].items;
      const middle = (from + to) / 2, at = all.findIndex((i) => i.start + i.ns >= middle);
      choose(r, at < 0 ? all.length - 1 : at);
    };
    const does = {
      "+": () => zoom(0.6, 0.5), "=": () => zoom(0.6, 0.5), "-": () => zoom(1 / 0.6, 0.5), "0": () => view(0, whole), Home: () => view(0, whole),
      ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), ArrowUp: () => other(chosen.row - 1), ArrowDown: () => other(chosen.row + 1),
      ",": () => choose(chosen.row, Math.max(0, chosen.item - 1)), ".": () => choose(chosen.row, Math.min(items - 1, chosen.item + 1)),
    }[e.key];
    if (does && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); does(); }
  });
  new ResizeObserver(() => { const w = Math.floor(canvas.clientWidth); if (w !== width) { width = w; redraw(); } }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  const button = (label, name, does) => h("button", { type: "button", "aria-label": name, onclick: does }, label);
  const kinds = h("ul", { class: "keys" }, data.call_kinds.map((k) => h("li", null, h("span", { class: "key", style: "background:" + colour(CALLS[k]) }), "call: " + k)));
  return h("div", { class: "timeline" },
    h("div", { class: "tools" }, button("−", "Zoom out", () => zoom(1 / 0.6, 0.5)), button("+", "Zoom in", () => zoom(0.6, 0.5)),
      button("◀", "Earlier", () => move(-0.3)), button("▶", "Later", () => move(0.3)), button("Whole", "The whole window", () => view(0, whole)),
      h("span", { class: "note" }, "Drag moves. Click, then the wheel zooms; then also the keys + − ← → ↑ ↓ , . 0")),
    canvas, picked, kinds, h("p", { class: "note" }, leftOut(data)));
}

/** What of the step is not drawn as it was. */
function leftOut(data) {
  const said = [];
  const runs = (what, ns) => ns > 0 && said.push(what + " shorter than " + time(ns) + " and closer together than that are drawn as one");
  runs("Operations", data.streams_drawn_as_one_below_ns);
  runs("Calls", data.threads_drawn_as_one_below_ns);
  if (data.streams_left_out) said.push(many(data.streams_left_out, "stream") + " with less work left out");
  if (data.threads_left_out) said.push(many(data.threads_left_out, "thread") + " with less time in calls left out");
  if (data.idle_left_out) said.push("the " + many(data.idle_left_out, "shortest idle slice") + " left out (" + time(data.idle_left_out_ns) + ")");
  return said.length ? said.join("; ") + "." : "Nothing is left out.";
}
