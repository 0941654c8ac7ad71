// SPDX-License-Identifier: Apache-2.0
// What all parts draw with: elements, numbers in words, the tip. Texts go in as text nodes, never
// as markup.

const SVG = document.getElementById("svg").namespaceURI;
const tipBox = document.getElementById("tip");

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
function h(tag, attributes, ...children) { return fill(document.createElement(tag), attributes, children); }
function s(tag, attributes, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }

/** Three digits of a number. */
function digits(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(2);
}
/** A length of time: 850 ns, 12.3 µs, 4.21 ms, 1.20 s. */
function time(ns) {
  const size = Math.abs(ns);
  if (size === 0) return "0";
  if (size < 999.5) return (size < 10 && ns % 1 ? ns.toFixed(1) : Math.round(ns)) + " ns";
  if (size < 999.5e3) return digits(ns / 1e3) + " µs";
  if (size < 999.5e6) return digits(ns / 1e6) + " ms";
  return digits(ns / 1e9) + " s";
}
/** A round length: without zeros that say nothing. */
function even(ns) { return time(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(/\. /, " "); }
/** A moment, with the places that a view of `span` ns needs; `more` of them. */
function moment(ns, span, more) {
  const [unit, word] = span >= 2e9 ? [1e9, "s"] : span >= 2e6 ? [1e6, "ms"] : [1e3, "µs"];
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(span / unit / 100)))) + (more || 0);
  return (ns / unit).toFixed(places) + " " + word;
}
function percent(part, whole) {
  if (!whole || !part) return "0%";
  const p = part / whole * 100;
  return p < 0.1 ? "<0.1%" : p.toFixed(1) + "%";
}
function many(n, one, more) { return n.toLocaleString("en") + " " + (n === 1 ? one : more || one + "s"); }
function capital(text) { return text.charAt(0).toUpperCase() + text.slice(1); }
function colour(key) { return "var(--" + key + ")"; }

/** Shows lines of text beside a point of the window; nothing hides it. */
function tip(lines, x, y) {
  if (!lines) { tipBox.hidden = true; return; }
  const text = lines.filter(Boolean).join("\n");
  if (tipBox.textContent !== text) tipBox.textContent = text;
  tipBox.hidden = false;
  const box = tipBox.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), innerWidth - box.width - 8);
  const below = y + 18 + box.height < innerHeight;
  tipBox.style.left = Math.max(8, left) + "px";
  tipBox.style.top = Math.max(8, below ? y + 18 : y - box.height - 12) + "px";
}
addEventListener("scroll", () => tip(null), { passive: true });
addEventListener("keydown", (e) => { if (e.key === "Escape") tip(null); });

/** A place whose picture is made anew whenever its width changes. `make(width)` returns a node. */
function chart(make) {
  const box = h("div", { class: "chart" });
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    // not inside the observer's own round: what is drawn changes heights
    if (width > 0 && width !== drawn) { drawn = width; requestAnimationFrame(() => box.replaceChildren(make(width))); }
  }).observe(box);
  return box;
}
/** Columns of a chart one after another, by pointer or arrow keys. `at(i)` is {x, width, lines}. */
function walk(svg, count, height, at) {
  let now = -1;
  const mark = s("rect", { class: "mark", y: 0, height, visibility: "hidden" });
  svg.append(mark);
  const show = (i, x, y) => {
    now = i;
    const column = at(i);
    mark.setAttribute("x", column.x - 1);
    mark.setAttribute("width", column.width + 2);
    mark.setAttribute("visibility", "visible");
    const box = svg.getBoundingClientRect();
    tip(column.lines, x === undefined ? box.left + column.x : x, y === undefined ? box.top + 20 : y);
  };
  const hide = () => { mark.setAttribute("visibility", "hidden"); tip(null); };
  svg.addEventListener("pointermove", (e) => {
    const x = e.clientX - svg.getBoundingClientRect().left;
    let best = -1;
    for (let i = 0; i < count; i++) {
      const c = at(i);
      if (x >= c.x - 1 && x < c.x + c.width + 1) best = i;
    }
    if (best < 0) hide(); else show(best, e.clientX, e.clientY);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (e) => {
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: count - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    show(Math.min(count - 1, Math.max(0, to)));
  });
}
/** The largest round number up to `most`. */
function round(most) {
  const power = Math.pow(10, Math.floor(Math.log10(most)));
  return [5, 2.5, 2, 1].map((m) => m * power).find((v) => v <= most * 1.0001) || power;
}
/** Round numbers from 0 up to `top`, three to six. */
function ticks(top) {
  const step = round(top / 3 || 1);
  const all = [];
  for (let v = 0; v <= top * 1.0001; v += step) all.push(v);
  return all;
}
/** The lines of a tip that split a time by bucket, largest first. */
function split(legend, parts, whole) {
  return parts.map((ns, i) => [ns, legend[i].name]).filter((p) => p[0] > 0).sort((a, b) => b[0] - a[0])
    .slice(0, 8).map(([ns, name]) => name + " " + time(ns) + " (" + percent(ns, whole) + ")");
}
