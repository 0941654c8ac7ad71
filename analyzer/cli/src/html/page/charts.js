// SPDX-License-Identifier: Apache-2.0
// Buckets as one bar, per step, of two runs; histograms; time by range or launcher.

/** One bar and its legend with shares. */
function bucketBar(legend, device) {
  const { ns, tenths } = device.buckets;
  const share = (i) => (tenths[i] / 10).toFixed(1) + "%";
  const shown = legend.map((b, i) => i).filter((i) => ns[i] > 0);
  const bar = h("div", { class: "bar", role: "img", "aria-label": "Shares of the time: " + shown.map((i) => legend[i].name + " " + share(i)).join(", ") },
    shown.map((i) => h("span", {
      style: "flex:" + ns[i] + " 0 0px;background:" + colour(legend[i].key),
      onpointermove: (e) => tip([legend[i].name + " " + share(i), time(ns[i]), legend[i].what], e.clientX, e.clientY),
      onpointerleave: () => tip(null),
    }, tenths[i] >= 60 ? legend[i].name : "")));
  const items = legend.map((b, i) => h("li", { class: ns[i] > 0 ? null : "none", title: b.what },
    h("span", { class: "key", style: "background:" + colour(b.key) }), h("span", null, b.name),
    h("span", { class: "t" }, time(ns[i])), h("span", { class: "n" }, share(i))));
  const all = tenths.reduce((a, b) => a + b, 0);
  return h("figure", null, bar, h("ul", { class: "legend" }, items,
    h("li", { class: "sum" }, h("span"), h("span", null, "All"), h("span", { class: "t" }, time(device.wall_ns)), h("span", { class: "n" }, (all / 10).toFixed(1) + "%"))));
}

/** Dataload, forward, backward, optimizer and the rest: work and idle time of a step. */
function phases(data) {
  const other = { ...data.other, phase: "other", ns_a_step: data.other.busy_ns_a_step + data.other.idle_ns_a_step };
  const rows = data.parts.concat(other.ns_a_step > 0 ? [other] : []);
  const most = Math.max(...rows.map((r) => r.share));
  const meter = (r) => {
    const wide = Math.max(2, r.share / most * 100), works = r.ns_a_step ? r.busy_ns_a_step / r.ns_a_step * 100 : 0;
    return h("span", { class: "meter", style: "width:" + wide + "%;background:linear-gradient(90deg, var(--compute) " + works + "%, var(--soft) 0)" });
  };
  const used = (r, key) => (r.counters ? r.counters[key] : null);
  const units = [["tensor_active_share", "Tensor cores"], ["memory_bandwidth_share", "Memory bandwidth"]].filter(([key]) => rows.some((r) => used(r, key) !== null));
  const time_or_none = (ns) => (ns === null || ns === undefined ? "–" : time(ns));
  const cells = (r) => [
    h("td", { class: "text" }, r.phase), h("td", { class: "share" }, percent(r.share, 1), meter(r)),
    h("td", null, time(r.ns_a_step)), h("td", null, time(r.busy_ns_a_step)), h("td", null, time(r.idle_ns_a_step)),
    h("td", null, time_or_none(r.host_ns_a_step)),
    units.map(([key]) => h("td", null, used(r, key) !== null ? percent(used(r, key), 1) : "–")),
    h("td", { class: "text by" }, r.by || ""),
  ];
  const heads = ["Phase", "Share", "A step", "GPU works", "GPU idles", "On the host", ...units.map((u) => u[1]), "Known by"];
  return [
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Phases" }, h("table", { class: "cards" },
      h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i === 0 ? "text" : t === "Known by" ? "text by" : null }, t)))),
      h("tbody", null, rows.map((r) => h("tr", null, cells(r)))))),
    h("ul", { class: "keys" }, [["compute", "the GPU works"], ["soft", "the GPU idles"]].map(([key, what]) =>
      h("li", null, h("span", { class: "key", style: "background:" + colour(key) }), what))),
    data.remarks.length > 0 && h("ul", { class: "note" }, data.remarks.map((r) => h("li", null, r))),
  ];
}

/** Only the buckets that occur. */
function keys(legend, parts) {
  return h("ul", { class: "keys" }, legend.filter((b, i) => parts[i] > 0).map((b) =>
    h("li", null, h("span", { class: "key", style: "background:" + colour(b.key) }), b.name)));
}
function sums(rows) { return rows.reduce((all, row) => row.map((n, i) => n + (all[i] || 0)), []); }

/** Frame of a chart: lines across at round values. Returns svg, and y of a value. */
function frame(width, height, left, top, label, words) {
  const svg = s("svg", { width, height, viewBox: "0 0 " + width + " " + height, role: "img", tabindex: 0, "aria-label": label });
  const bottom = height - 34;
  const y = (v) => bottom - (bottom - 16) * Math.min(1, v / top);
  for (const v of ticks(top)) {
    svg.append(s("line", { class: "grid", x1: left, x2: width, y1: y(v), y2: y(v) }),
      s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, words(v)));
  }
  return { svg, y, bottom };
}

/** Steps as stacked bars. */
function perStep(legend, steps) {
  const bars = steps.bars;
  const mean = (bar) => bar.ns / bar.steps;
  const steady = bars.filter((b) => !b.warm_up);
  const longest = Math.max(...(steady.length ? steady : bars).map(mean));
  // one step of another kind (a checkpoint, the first one) does not flatten the others
  const top = Math.min(longest, steps.median_ns > 0 ? steps.median_ns * 4 : longest) * 1.08;
  const label = many(steps.count, "step") + ", median " + time(steps.median_ns) + ". Arrow keys go from step to step.";
  return chart((width) => {
    const left = 62, height = 240;
    const { svg, y, bottom } = frame(width, height, left, top, label, even);
    const wide = (width - left) / bars.length;
    const at = (i) => left + wide * i;
    const space = wide > 4 ? 1 : 0;
    const warm = bars.filter((b) => b.warm_up).length;
    if (warm) {
      svg.append(s("rect", { class: "warm", x: left, y: 0, width: wide * warm, height: bottom }));
      svg.append(s("text", { x: left + wide * warm + 4, y: 12 }, "← warm-up, left out of the figures"));
    }
    bars.forEach((bar, i) => {
      let under = 0;
      const piece = (ns, paint, extra) => {
        const from = y(under), to = y(under += ns / bar.steps);
        if (from - to > 0.05) svg.append(s("rect", Object.assign({ x: at(i), width: Math.max(0.5, wide - space), y: to, height: from - to, style: "fill:" + paint }, extra)));
      };
      bar.parts.forEach((ns, b) => piece(ns, colour(legend[b].key), bar.warm_up ? { opacity: 0.7 } : null));
      if (bar.not_seen_ns) piece(bar.not_seen_ns, "var(--line)");
      if (mean(bar) > top) svg.append(s("text", { x: at(i) + wide / 2, y: 26, "text-anchor": "middle" }, "▲"));
    });
    const names = Math.max(1, Math.ceil(bars.length * 48 / (width - left)));
    bars.forEach((bar, i) => {
      if (i % names === 0) svg.append(s("text", { x: at(i) + wide / 2, y: bottom + 16, "text-anchor": "middle" }, bar.first));
    });
    svg.append(s("text", { x: width, y: height - 4, "text-anchor": "end" }, "step"));
    walk(svg, bars.length, bottom, (i) => {
      const bar = bars[i];
      const name = bar.steps === 1 ? "Step " + bar.first : "Steps " + bar.first + " to " + bar.last + ", mean of " + bar.steps;
      return { x: at(i), width: wide, lines: [
        name + ": " + time(mean(bar)) + (bar.warm_up ? " (warm-up)" : "") + (bar.odd ? " (unlike the others)" : ""),
        ...split(legend, bar.parts.map((ns) => ns / bar.steps), mean(bar)), bar.not_seen_ns ? "Not seen " + time(bar.not_seen_ns / bar.steps) : ""] };
    });
    return svg;
  });
}

/** Bins; by time or by count. */
function histogram(legend, data, what, paint) {
  if (!data.bins.length) return h("p", { class: "note" }, "There are none.");
  const box = h("div");
  const buttons = ["ns", "count"].map((by) => h("button", { type: "button", onclick: () => draw(by) }, by === "ns" ? "by time" : "by number"));
  function draw(by) {
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String((i === 0) === (by === "ns"))));
    const bins = data.bins, top = Math.max(...bins.map((b) => b[by])) * 1.08 || 1;
    const words = by === "ns" ? even : (v) => v >= 1e6 ? digits(v / 1e6) + " M" : v >= 1e4 ? digits(v / 1e3) + " k" : v.toFixed(0);
    box.replaceChildren(chart((width) => {
      const left = 62, height = 210;
      const label = many(data.count, what) + " by length, " + (by === "ns" ? "their time" : "how many") + ". Arrow keys go from bin to bin.";
      const { svg, y, bottom } = frame(width, height, left, top, label, words);
      const wide = (width - left) / bins.length;
      bins.forEach((bin, i) => {
        const parts = bin.parts || [bin.ns];
        let under = 0;
        parts.forEach((ns, b) => {
          const from = y(under), to = y(under += bin.ns ? bin[by] * ns / bin.ns : 0);
          if (from - to > 0.05) svg.append(s("rect", { x: left + wide * i, width: Math.max(1, wide - 1), y: to, height: from - to, style: "fill:" + (bin.parts ? colour(legend[b].key) : paint) }));
        });
      });
      const every = Math.max(1, Math.ceil(bins.length * 56 / (width - left)));
      bins.forEach((bin, i) => { if (i % every === 0 && left + wide * i < width - 40) svg.append(s("text", { x: left + wide * i, y: bottom + 16 }, even(bin.from_ns))); });
      svg.append(s("text", { x: width, y: height - 4, "text-anchor": "end" }, "length, from"));
      walk(svg, bins.length, bottom, (i) => {
        const bin = bins[i];
        return { x: left + wide * i, width: wide - 1, lines: [
          time(bin.from_ns) + " to " + time(bin.to_ns), many(bin.count, what) + ", " + time(bin.ns) + " together",
          ...(bin.parts ? split(legend, bin.parts, bin.ns) : [])] };
      });
      return svg;
    }));
  }
  draw("ns");
  return h("div", null, h("div", { class: "tools" }, buttons), box);
}

/** Time by where in the program: a tree from the top down. `key` of a node is the place in the
 * legend of what most of its time is. */
function flame(legend, key, label, whole, data) {
  const box = h("div", { class: "flame", role: "tree", "aria-label": label });
  const root = data.root, above = new Map();
  (function tie(node) { node.inside.forEach((n) => { above.set(n, node); tie(n); }); }(root));
  let shown = root;
  function draw(width, focus) {
    const line = [];
    for (let n = shown; n; n = above.get(n)) line.unshift(n);
    const buttons = new Map();
    let deepest = 0;
    const put = (node, x, w, row) => {
      deepest = Math.max(deepest, row);
      const open = () => { shown = node; tip(null); draw(width, node); };
      const lines = [node.name, time(node.ns) + ", " + percent(node.ns, root.ns) + " of " + whole, "mostly " + legend[node[key]].name];
      const button = h("button", {
        type: "button", role: "treeitem", tabindex: -1, "aria-label": lines.join(", "),
        style: "left:" + x + "px;width:" + Math.max(1, w) + "px;top:" + row * 23 + "px;background:" + colour(legend[node[key]].key),
        onclick: open, onpointermove: (e) => tip(lines, e.clientX, e.clientY), onpointerleave: () => tip(null), onblur: () => tip(null),
        onfocus: (e) => { if (e.target.matches(":focus-visible")) { const b = e.target.getBoundingClientRect(); tip(lines, b.left, b.bottom); } },
        onkeydown: (e) => {
          const up = above.get(node), beside = up ? up.inside : [node], i = beside.indexOf(node);
          const to = { ArrowUp: up, ArrowDown: node.inside[0], ArrowLeft: beside[i - 1], ArrowRight: beside[i + 1] }[e.key];
          if (to && buttons.has(to)) { e.preventDefault(); buttons.get(to).focus(); }
        },
      }, w > 28 ? node.name : "");
      buttons.set(node, button);
    };
    line.forEach((n, row) => put(n, 0, width, row));
    const down = (node, x, scale, row) => {
      for (const n of node.inside) {
        const w = n.ns * scale;
        if (w >= 1.5) { put(n, x, w, row); down(n, x, scale, row + 1); }
        x += w;
      }
    };
    down(shown, 0, width / shown.ns, line.length);
    box.style.height = (deepest + 1) * 23 + "px";
    box.replaceChildren(...buttons.values());
    buttons.get(shown).tabIndex = 0;
    if (focus) buttons.get(focus).focus();
  }
  return chart((width) => { draw(width); return box; });
}

/** Two runs: a step of each, on one scale. */
function sideBySide(legend, change, names) {
  if (!change.parts) {
    return h("p", { class: "note" }, "Without steps in both, what a step costs cannot be compared; the shares of each run stand below.");
  }
  const all = (side) => change.parts.reduce((sum, p) => sum + p[side], change.not_seen[side]);
  const top = Math.max(all("a"), all("b"));
  const row = (side, i) => {
    const parts = change.parts.map((p) => p[side]);
    return h("div", null, h("p", { class: "soft" }, h("b", null, i ? "B, after: " : "A, before: "), names[i] + ": mean " + time(change.step[side]) + ", median " + time(change.median[side]) + " of " + many(change.steps[i], "step")),
      h("div", { class: "bar", style: "width:" + all(side) / top * 100 + "%", role: "img", "aria-label": split(legend, parts, all(side)).join(", ") },
        legend.map((b, k) => parts[k] > 0 && h("span", {
          style: "flex:" + parts[k] + " 0 0px;background:" + colour(b.key),
          onpointermove: (e) => tip([b.name, time(parts[k]) + " a step", b.what], e.clientX, e.clientY), onpointerleave: () => tip(null),
        }, parts[k] / top > 0.08 ? b.name : "")),
        change.not_seen[side] > 0 && h("span", { style: "flex:" + change.not_seen[side] + " 0 0px;background:var(--line)", title: "not seen" })));
  };
  return h("div", null, ["a", "b"].map(row), keys(legend, change.parts.map((p) => p.a + p.b)));
}
