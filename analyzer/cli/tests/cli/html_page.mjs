// SPDX-License-Identifier: Apache-2.0
// Runs a page's script on a document that only remembers, uses everything on it that can be used,
// and prints what a reader would see as JSON. A fault in the script ends it with an error. usage:
// node html_page.mjs PAGE

import { readFileSync } from "node:fs";

const page = readFileSync(process.argv[2], "utf8");
const between = (from, to) => page.split(from)[1].split(to)[0];
const drawings = []; // texts of each picture on the canvas

class Node {
  constructor(tag) {
    Object.assign(this, { tagName: tag, parts: [], attributes: {}, listeners: {}, style: {}, hidden: false, clientWidth: 800, namespaceURI: "svg" });
  }
  append(...parts) { this.parts.push(...parts.map((p) => (p instanceof Node ? p : String(p)))); }
  replaceChildren(...parts) { this.parts = []; this.append(...parts); }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  addEventListener(kind, does) { (this.listeners[kind] ||= []).push(does); }
  getBoundingClientRect() { return { left: 0, top: 0, right: 800, bottom: 300, width: 800, height: 300 }; }
  setPointerCapture() {}
  matches() { return true; }
  focus() { document.activeElement = this; this.fire("focus", {}); }
  fire(kind, event) {
    const whole = { type: kind, target: this, preventDefault() {}, clientX: 400, clientY: 60, pointerId: 1, deltaX: 0, deltaY: 0, ...event };
    for (const does of this.listeners[kind] || []) does(whole);
  }
  get textContent() { return this.parts.map((p) => (p instanceof Node ? p.textContent : p)).join(""); }
  set textContent(text) { this.parts = [text]; }
  getContext() {
    return {
      setTransform: () => drawings.push([]), fillText: (text) => drawings.at(-1).push(text), measureText: (text) => ({ width: text.length * 7 }),
      fillRect() {}, strokeRect() {}, save() {}, restore() {}, beginPath() {}, rect() {}, clip() {},
    };
  }
}
class Cell extends Node {}

const byId = { figures: new Node("script"), main: new Node("main"), foot: new Node("footer"), tip: new Node("div"), svg: new Node("svg") };
byId.figures.textContent = between('<script type="application/json" id="figures">', "</script>");
const make = (tag) => (tag === "td" || tag === "th" ? new Cell(tag) : new Node(tag));
Object.assign(globalThis, {
  Node, HTMLTableCellElement: Cell, innerWidth: 800, innerHeight: 600, devicePixelRatio: 2,
  document: { getElementById: (id) => byId[id], createElement: make, createElementNS: (_, tag) => make(tag), documentElement: new Node("html"), activeElement: null },
  ResizeObserver: class { constructor(does) { this.does = does; } observe() { this.does(); } },
  matchMedia: () => new Node("media"), addEventListener() {}, getComputedStyle: () => ({ getPropertyValue: () => "#123456" }), requestAnimationFrame: (does) => does(),
});

(0, eval)(page.split("<script>")[1].split("</script>")[0]);

function* all(node) {
  yield node;
  for (const part of node.parts) if (part instanceof Node) yield* all(part);
}
const texts = (node) => [...all(node)].flatMap((n) => n.parts.filter((p) => !(p instanceof Node)));
const nodes = (tag) => [...all(byId.main)].filter((n) => n.tagName === tag);
const seen = texts(byId.main);

const canvas = nodes("canvas")[0];
const picked = () => canvas && [...all(byId.main)].find((n) => n.attributes.class === "picked").textContent;
const axes = {}, picks = [];
if (canvas) {
  canvas.focus();
  const key = (key) => canvas.fire("keydown", { key });
  const axis = () => drawings.at(-1).slice(0, 2).join(" ");
  axes.first = axis();
  key("+"), key("+");
  axes.closer = axis();
  key("ArrowRight");
  axes.later = axis();
  key("-"), key("ArrowLeft"), key("0");
  axes.whole = axis();
  canvas.fire("wheel", { deltaY: -300 });
  axes.wheel = axis();
  for (const [kind, clientX] of [["pointerdown", 400], ["pointermove", 100], ["pointerup", 100]]) canvas.fire(kind, { clientX });
  axes.dragged = axis();
  key("Home");
  for (const [kind, pointerId, clientX] of [["pointerdown", 1, 300], ["pointerdown", 2, 500], ["pointermove", 2, 700], ["pointerup", 2, 700], ["pointerup", 1, 300]]) canvas.fire(kind, { pointerId, clientX });
  axes.pinched = axis();
  key("Home");
  for (const k of [".", ".", ",", "ArrowDown", ".", "ArrowUp"]) { key(k); picks.push(picked()); }
  for (let y = 20; y < 300; y += 5) canvas.fire("pointermove", { clientY: y }), canvas.fire("dblclick", { clientY: y });
}
const tips = [];
for (const node of all(byId.main)) {
  if (node === canvas) continue;
  for (const kind of ["pointermove", "focus", "keydown"]) {
    if (!node.listeners[kind]) continue;
    node.fire(kind, { key: "ArrowRight" });
    if (!byId.tip.hidden) tips.push(byId.tip.textContent);
  }
}
for (let round = 0; round < 2; round++) for (const button of nodes("button")) button.fire("click", {});
const labels = [...all(byId.main)].map((n) => n.attributes["aria-label"]).filter(Boolean);
// the last table by each of its headings: names in order, after one click and after two
const order = {}, table = nodes("table").at(-1);
for (const head of table ? [...all(table)].filter((n) => n.tagName === "th") : []) {
  const names = () => nodes("tbody").at(-1).parts.map((row) => row.parts[0].textContent);
  const click = () => { head.parts[0].fire("click", {}); return names(); };
  order[head.textContent] = [click(), click()];
}
console.log(JSON.stringify({ seen, labels, tips: [...new Set(tips)], axes, picks, drawn: [...new Set(drawings.flat())], order, foot: texts(byId.foot) }));
