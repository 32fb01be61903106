// How large a step does a delay allow? The map of delays and steps with its frontier, and the path of w at one point of it.

import { decades, digits, scale } from "../../../labkit/show/figures/common.js";
import { interactive } from "../../../labkit/show/figures/interactive.js";

const defaults = { tau: 4, eta_L: 0.33, view: "path", U: 160 };
const MOST = 16; // versions of delay
const [LOW, HIGH] = [0.02, 2.5];
const STEPS = Array.from({ length: 160 }, (_, i) => Number((LOW * (HIGH / LOW) ** (i / 159)).toPrecision(3)));
const EDGE = 2.2; // |w| that the picture shows

const frontier = (tau) => 2 * Math.sin(Math.PI / (2 * (2 * tau + 1))); // Levin and May 1976
const swingsAbove = (tau) => tau ** tau / (tau + 1) ** (tau + 1);

// The x between a and b at which f, which grows, passes zero.
function bisect(f, a, b) {
  for (let i = 0; i < 100; i++) {
    const middle = (a + b) / 2;
    if (middle === a || middle === b) break;
    if (f(middle) < 0) a = middle;
    else b = middle;
  }
  return (a + b) / 2;
}

// All roots of z^(tau+1) - z^tau + x, as [re, im]. For z = r exp(i theta) the imaginary part says
// r = sin(tau theta) / sin((tau + 1) theta); on each stretch of theta where that is positive, x grows from 0 without end.
function roots(tau, x) {
  if (tau === 0) return [[1 - x, 0]];
  const found = [];
  const pair = (from, till) => {
    const r = (theta) => Math.sin(tau * theta) / Math.sin((tau + 1) * theta);
    const of = (theta) => tau * Math.log(r(theta)) + Math.log(Math.sin(theta) / Math.sin((tau + 1) * theta)) - Math.log(x);
    const theta = bisect(of, from, till);
    const size = r(theta);
    found.push([size * Math.cos(theta), size * Math.sin(theta)], [size * Math.cos(theta), -size * Math.sin(theta)]);
  };
  const top = tau / (tau + 1); // where two real roots meet
  const real = (z) => z ** tau * (1 - z) - x;
  if (x <= swingsAbove(tau)) found.push([bisect((z) => -real(z), top, 1), 0], [bisect(real, 0, top), 0]);
  else pair(0, Math.PI / (tau + 1));
  for (let j = 1; j < tau / 2; j++) pair((2 * Math.PI * j) / tau, ((2 * j + 1) * Math.PI) / (tau + 1));
  if (tau % 2 === 0) found.push([-bisect((y) => y ** tau * (1 + y) - x, 0, 3), 0]);
  return found;
}

export function compute({ tau, eta_L, U }) {
  const path = [1];
  for (let u = 0; u < U; u++) path.push(path[u] - eta_L * path[Math.max(u - tau, 0)]);
  const all = roots(tau, eta_L);
  const sizes = all.map(([re, im]) => Math.hypot(re, im));
  const radius = Math.max(...sizes);
  const [re, im] = all[sizes.indexOf(radius)];
  const angle = Math.abs(Math.atan2(im, re));
  const swings = eta_L > swingsAbove(tau);
  return {
    path, roots: all, radius,
    frontier: frontier(tau),
    period: swings ? (2 * Math.PI) / angle : null, // updates that one swing takes
    w_end: Math.abs(path[U]),
    lines: Array.from({ length: MOST + 1 }, (_, t) => [frontier(t), swingsAbove(t)]),
  };
}

function fate(r, { eta_L }) {
  if (Math.abs(eta_L / r.frontier - 1) < 1e-9) return "neither settles nor runs away";
  if (eta_L > r.frontier) return "runs away";
  return r.period ? "swings and settles" : "settles without a swing";
}

function describe(r, state) {
  const swing = r.period ? ` One swing takes ${digits(r.period, 3)} updates.` : "";
  return (
    `A delay of ${state.tau} versions allows steps up to ${digits(r.frontier, 3)} / L. With ${digits(state.eta_L, 3)} / L the path ${fate(r, state)}: ` +
    `in the long run a factor of ${digits(r.radius)} an update.${swing} After ${state.U} updates |w| is ${digits(r.w_end, 3)}, from 1.`
  );
}

function draw(stage, r, state, set) {
  const wide = !stage.narrow;
  const high = 250;
  const map = { left: 44, right: wide ? Math.round(stage.width * 0.46) : stage.width - 8, top: 34, bottom: 34 + high };
  const below = map.bottom + 44;
  const side = wide ? { left: map.right + 66, right: stage.width - 8, top: 34, bottom: 34 + high } : { left: 44, right: stage.width - 8, top: below + 40, bottom: below + 40 + 190 };
  stage.clear(side.bottom + 46);
  const [x, y] = drawMap(stage, r, state, map);
  stage.text(side.left - 12, side.top - 12, `${state.view === "path" ? "w" : "the roots z"}:`);
  stage.text(side.left + (state.view === "path" ? 8 : 62), side.top - 12, fate(r, state), { kind: "bold" });
  if (state.view === "path") drawPath(stage, r, state, side);
  else drawRoots(stage, r, side);
  const move = (px, py) => {
    if (px > map.right + 20 || py > map.bottom + 20) return; // not on the map
    set("tau", Math.max(0, Math.min(MOST, Math.round(x.invert(px)))));
    set("eta_L", Math.max(LOW, Math.min(HIGH, Number(y.invert(py).toPrecision(3)))));
  };
  stage.drag(move, (px, py) => Math.hypot(px - x(state.tau), py - y(state.eta_L)) < 24);
}

// Three regions: no swing, swings that settle, swings that run away.
function drawMap(stage, r, state, { left, right, top, bottom }) {
  const x = scale([-0.5, MOST + 0.5], [left, right]);
  const y = scale([LOW, HIGH], [bottom, top], true);
  const curve = (f) => Array.from({ length: 4 * (2 * MOST + 2) + 1 }, (_, i) => -0.5 + i / 8).map((t) => [x(t), Math.max(top, Math.min(bottom, y(f(Math.max(0, t)))))]);
  const [edge, calmer] = [curve(frontier), curve(swingsAbove)];
  const tint = (name, share) => `color-mix(in srgb, var(--lk-${name}) ${share}%, var(--lk-paper))`;
  const area = (points, fill) => stage.path(points, { fill, stroke: "none" });
  area([...edge, [right, top], [left, top]], tint("measured", 30));
  area([...edge, ...[...calmer].reverse()], tint("guess", 14));
  area([...calmer, [right, bottom], [left, bottom]], tint("guess", 34));
  stage.path(calmer, { "stroke-width": 1, "stroke-dasharray": "4 3" });
  stage.path(edge, { "stroke-width": 2 });
  for (let t = 0; t <= MOST; t++) stage.add("circle", { cx: x(t), cy: y(frontier(t)), r: 3, fill: "var(--lk-ink)" });
  stage.text(right - 6, top + 20, "runs away", { anchor: "end", kind: "bold" });
  stage.text(left + 6, bottom - 8, "settles without a swing", {});
  stage.text(x(9), y(0.075), "swings and settles", { anchor: "middle" });
  stage.axis("bottom", x, { at: bottom, values: [0, 2, 4, 6, 8, 10, 12, 14, 16], title: "delay τ (versions)" });
  stage.axis("left", y, { at: left, values: decades(LOW, HIGH), format: (v) => digits(v), title: "step η L" });
  const at = { cx: x(state.tau), cy: y(Math.max(LOW, Math.min(HIGH, state.eta_L))) };
  stage.add("circle", { ...at, r: 9, fill: "var(--lk-simulated)", stroke: "var(--lk-ink)", "stroke-width": 2 });
  stage.add("circle", { ...at, r: 24, fill: "transparent", class: "lk-point", style: "cursor: grab" });
  return [x, y];
}

function drawPath(stage, r, { U }, { left, right, top, bottom }) {
  const x = scale([0, U], [left, right]);
  const y = scale([-EDGE, EDGE], [bottom, top]);
  stage.axis("bottom", x, { at: bottom, title: "update u" });
  stage.axis("left", y, { at: left, values: [-2, -1, 0, 1, 2], format: (v) => digits(v), grid: right - left });
  const clip = `${stage.id}-clip`;
  const box = stage.add("clipPath", { id: clip });
  stage.add("rect", { x: left, y: top, width: right - left, height: bottom - top }, box);
  const g = stage.add("g", { "clip-path": `url(#${clip})` });
  const far = 50 * EDGE; // as far as lines are drawn: the path may be at 10^90
  stage.path(r.path.map((w, u) => [x(u), y(Math.max(-far, Math.min(far, w)))]), { stroke: "var(--lk-simulated)", "stroke-linejoin": "round" }, g);
  const lost = r.path.findIndex((w) => Math.abs(w) > EDGE);
  if (lost >= 0) stage.text(Math.min(x(lost) + 8, right), bottom - 8, "out of the picture", { anchor: x(lost) > (left + right) / 2 ? "end" : "start", kind: "bold halo" });
}

// The roots; w settles if all are inside the circle.
function drawRoots(stage, r, { left, right, top, bottom }) {
  const span = Math.min(right - left, bottom - top) / 2;
  const [cx, cy] = [(left + right) / 2, (top + bottom) / 2];
  const unit = span / 1.65;
  stage.add("circle", { cx, cy, r: unit, fill: "none", stroke: "var(--lk-ink)", "stroke-width": 1.5 });
  for (const [dx, dy] of [[span, 0], [0, span]]) stage.add("line", { x1: cx - dx, x2: cx + dx, y1: cy - dy, y2: cy + dy, class: "lk-grid" });
  for (const [re, im] of r.roots) {
    const out = Math.hypot(re, im) > 1;
    const [px, py] = [cx + unit * Math.max(-1.6, Math.min(1.6, re)), cy - unit * Math.max(-1.6, Math.min(1.6, im))];
    stage.add("circle", { cx: px, cy: py, r: 6, fill: out ? "var(--lk-measured)" : "var(--lk-simulated)", stroke: "var(--lk-ink)", "stroke-width": out ? 2.5 : 1 });
  }
  stage.text(cx, bottom + 18, "Re z", { anchor: "middle" });
  stage.text(cx + 4, top + 10, "Im z", { kind: "muted" });
  stage.text(cx + unit + 5, cy + 16, "1", { kind: "muted" });
}

export default interactive({
  title: "How old may a gradient be?",
  defaults,
  controls: [
    { kind: "slider", name: "tau", label: "delay τ", min: 0, max: MOST, format: (t) => `${t} version${t === 1 ? "" : "s"}` },
    { kind: "slider", name: "eta_L", label: "step η L", values: STEPS, format: (v) => digits(v, 3) },
    { kind: "choice", name: "view", label: "beside the map", options: [["path", "path of w"], ["roots", "roots"]] },
  ],
  compute,
  describe,
  draw,
  readouts: (r, state) => [
    { key: "frontier", label: "largest step η L", value: r.frontier, text: digits(r.frontier, 3), strong: true },
    { key: "radius", label: "factor an update", value: r.radius, text: digits(r.radius), strong: true },
    { key: "period", label: "one swing", value: r.period ?? "none", text: r.period ? `${digits(r.period, 3)} updates` : "none", strong: true },
    { key: "w_end", label: `|w| after ${state.U} updates`, value: r.w_end, text: digits(r.w_end, 3), strong: true },
  ],
});
