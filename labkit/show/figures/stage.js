// Where a figure is drawn: one SVG as wide as its place, in pixels, so that letters keep their size on a phone.

import { scale, svg } from "./common.js";

let stages = 0; // so many on this page so far: ids must differ

export class Stage {
  constructor() {
    this.id = `lk${++stages}`;
    this.node = svg("svg", { role: "img", class: "lk-svg" });
    this.node.addEventListener("touchstart", (event) => this.held?.(event), { passive: false });
    this.width = 640;
    this.motion = 1; // how far the step that is shown has come, from 0 to 1: 1 unless a player is moving
  }

  // A phone: draw fewer labels, not smaller ones.
  get narrow() {
    return this.width < 480;
  }

  clear(height) {
    this.height = height;
    this.node.replaceChildren(patterns(this.id));
    for (const [name, value] of Object.entries({ width: this.width, height, viewBox: `0 0 ${this.width} ${height}` }))
      this.node.setAttribute(name, value);
  }

  // Append an element; `parent` is this SVG unless given. Returns it.
  add(tag, attributes, parent = this.node) {
    const e = svg(tag, attributes);
    parent.append(e);
    return e;
  }

  // anchor: start, middle, end. Bold, muted, halo (a rim of paper, over lines): class names.
  text(x, y, words, { anchor = "start", kind = "", parent = this.node, ...more } = {}) {
    const e = this.add("text", { x, y, "text-anchor": anchor, class: `lk-text ${kind}`, ...more }, parent);
    e.textContent = words;
    return e;
  }

  // Move words that begin at their x to the left until they end inside the picture. Returns them.
  inside(words) {
    const x = Math.min(Number(words.getAttribute("x")), this.width - words.getComputedTextLength() - 2);
    words.setAttribute("x", Math.max(0, x));
    return words;
  }

  // kind: compute, wait, communicate (hatched and dotted as in labkit.show.lanes), or any colour.
  rect(x, y, width, height, kind, more = {}, parent = this.node) {
    const box = { x, y, width: Math.max(0, width), height: Math.max(0, height) };
    const colour = KINDS.includes(kind) ? `var(--lk-${kind})` : kind;
    const e = this.add("rect", { ...box, fill: colour, ...more }, parent);
    if (kind === "wait" || kind === "communicate")
      this.add("rect", { ...box, fill: `url(#${this.id}-${kind})`, "pointer-events": "none" }, parent);
    return e;
  }

  // Swatches in a row: [[kind, words], ...]. Returns where it ends.
  legend(x, y, entries) {
    for (const [kind, words] of entries) {
      this.rect(x, y - 11, 14, 13, kind, { stroke: "var(--lk-ink)", "stroke-width": 0.5 });
      const label = this.text(x + 19, y, words);
      x += 19 + (label.getComputedTextLength?.() || 7.2 * words.length) + 16;
    }
    return x;
  }

  path(points, more = {}, parent = this.node) {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
    return this.add("path", { d, fill: "none", stroke: "var(--lk-ink)", "stroke-width": 2, ...more }, parent);
  }

  // An axis below (or, side "left", beside) the picture: ticks, their labels by `format`, a title with its unit.
  axis(side, to, { at, format = String, title = "", values = to.ticks(this.narrow ? 4 : 6), grid = 0 }) {
    const below = side === "bottom";
    for (const value of values) {
      const p = to(value);
      const mark = below ? { x1: p, x2: p, y1: at, y2: at + 5 } : { y1: p, y2: p, x1: at - 5, x2: at };
      this.add("line", { ...mark, class: "lk-axis" });
      if (grid) this.add("line", { ...(below ? { x1: p, x2: p, y1: at, y2: at - grid } : { y1: p, y2: p, x1: at, x2: at + grid }), class: "lk-grid" });
      if (below) this.text(p, at + 18, format(value), { anchor: "middle" });
      else this.text(at - 8, p + 4, format(value), { anchor: "end" });
    }
    const [from, till] = to.range;
    this.add("line", below ? { x1: from, x2: till, y1: at, y2: at, class: "lk-axis" } : { y1: from, y2: till, x1: at, x2: at, class: "lk-axis" });
    if (title && below) this.text((from + till) / 2, at + 37, title, { anchor: "middle" });
    else if (title) this.text(0, Math.min(from, till) - 12, title); // above the axis: no letters on their side
  }

  // `move(x, y)` while a pointer is down on the picture, in its pixels. Fingers that scroll the page still do, except where
  // `holds(x, y)` says that there is something to be moved up and down.
  drag(move, holds = () => false) {
    const at = (event, to = move) => {
      const box = this.node.getBoundingClientRect();
      return to(((event.clientX - box.left) * this.width) / box.width, ((event.clientY - box.top) * this.height) / box.height);
    };
    this.held = (event) => at(event.touches[0], holds) && event.preventDefault();
    this.node.onpointerdown = (event) => {
      if (event.button) return;
      this.node.setPointerCapture(event.pointerId);
      at(event);
    };
    this.node.onpointermove = (event) => this.node.hasPointerCapture(event.pointerId) && at(event);
    this.node.style.touchAction = "pan-y";
    this.node.style.cursor = "pointer";
  }
}

const KINDS = ["compute", "wait", "communicate"];

function patterns(id) {
  const tile = { width: 6, height: 6, patternUnits: "userSpaceOnUse" };
  const wait = svg("pattern", { id: `${id}-wait`, ...tile, patternTransform: "rotate(45)" });
  wait.append(svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "#1a1a1a", "stroke-width": 1.4, opacity: 0.65 }));
  const communicate = svg("pattern", { id: `${id}-communicate`, ...tile });
  communicate.append(svg("circle", { cx: 2, cy: 2, r: 0.9, fill: "#1a1a1a", opacity: 0.65 }));
  const arrow = svg("marker", { id: `${id}-arrow`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto-start-reverse" });
  arrow.append(svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--lk-ink)" }));
  return svg("defs", {}, wait, communicate, arrow);
}
