// The same training runs against steps, bytes and seconds: who is first at a loss, and on which links? The runs are labkit's
// (state.curves, the plain one first); seconds are those of labkit.compress.price.

import { bits, bytes, count, decades, digits, scale, seconds } from "../../../labkit/show/figures/common.js";
import { interactive } from "../../../labkit/show/figures/interactive.js";

const defaults = { curves: null, against: "seconds", target: 0.3, beta: 2.5e6, alpha: 1e-4, compute_s: 0.002, coding: true };
const BETAS = decades(1e6, 1e11).map((bit) => bit / 8);
const COLOURS = ["var(--lk-ink)", ...[0, 1, 2, 3, 4, 5, 7].map((k) => `var(--lk-worker-${k})`)];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "", "7 3", "2 3", "9 3 2 3"];
const FORMAT = { steps: count, bytes, seconds };
const TITLES = { steps: "steps", bytes: "bytes sent by each worker", seconds: "time" };
const TARGETS = decades(1e-3, 10, [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9]);

// Bytes, rounds and bytes through the busiest port of the first n exchanges.
function spent({ costs }, n) {
  const total = [0, 0, 0];
  costs.forEach(([from, ...cost], i) => {
    const many = Math.max(0, Math.min(costs[i + 1]?.[0] ?? n, n) - from);
    cost.forEach((c, j) => (total[j] += many * c));
  });
  return total;
}

// Seconds on a link of bandwidth beta are line[0] + line[1] / beta.
function line(curve, n, { alpha, compute_s, coding }) {
  const [, rounds, port] = spent(curve, n);
  return [n * curve.every * (compute_s + (coding ? curve.coding_s : 0)) + rounds * alpha, port];
}

// The bandwidths, above the first and below the second, on which b's line is below a's (labkit.compress.price.Pays).
function pays(a, b) {
  const [savedSeconds, savedBytes] = [a[0] - b[0], a[1] - b[1]];
  if (savedBytes > 0) return [0, savedSeconds >= 0 ? Infinity : savedBytes / -savedSeconds];
  return savedSeconds > 0 ? [-savedBytes / savedSeconds, Infinity] : [0, 0];
}

export function compute(state) {
  const { curves, against, target, beta, alpha, coding } = state;
  const at = (curve, n) => {
    if (against === "steps") return n * curve.every;
    if (against === "bytes") return spent(curve, n)[0];
    const [fixed, port] = line(curve, n, state);
    return fixed + port / beta;
  };
  const exchange = (curve) => {
    const [, , rounds, port] = curve.costs.at(-1);
    return [rounds * alpha + (coding ? curve.coding_s * curve.every : 0), port];
  };
  const plain = curves[0];
  const plainReaches = plain.loss.findIndex((loss) => loss <= target);
  const runs = curves.map((curve, i) => {
    const reaches = curve.loss.findIndex((loss) => loss <= target);
    return {
      name: curve.name, i, loss: curve.loss,
      x: curve.loss.map((_, n) => at(curve, n)),
      reaches: reaches < 0 ? null : reaches,
      to_target: reaches < 0 ? Infinity : at(curve, reaches),
      sooner: reaches < 0 || plainReaches < 0 ? null : pays(line(plain, plainReaches, state), line(curve, reaches, state)),
      pays: pays(exchange(plain), exchange(curve)), // one exchange against one exchange
    };
  });
  const order = runs.map((_, i) => i).sort((i, j) => (runs[i].to_target === runs[j].to_target ? i - j : runs[i].to_target - runs[j].to_target));
  return { runs, order, first: runs[order[0]].to_target < Infinity ? runs[order[0]] : null, plain: runs[0] };
}

function where([low, high]) {
  if (high === 0) return "on no link";
  if (low === 0 && high === Infinity) return "on every link";
  return low === 0 ? `below ${bits(short(8 * high) / 8)}` : `above ${bits(short(8 * low) / 8)}`;
}

const short = (x) => Number(x.toPrecision(3));
const written = (x, { against }) => (x === Infinity ? "never" : FORMAT[against](short(x)));

function describe(r, state) {
  const link = state.against === "seconds" ? ` on a link of ${bits(state.beta)} and ${seconds(state.alpha)} a message` : "";
  const list = r.order.map((i) => `${r.runs[i].name} ${written(r.runs[i].to_target, state)}`).join(", ");
  return `To a loss of ${digits(state.target)}, in ${TITLES[state.against]}${link}: ${list}.`;
}

function draw(stage, r, state, set) {
  const left = 52;
  const right = stage.width - 12;
  const [top, bottom] = [34, stage.narrow ? 234 : 274];
  const row = stage.narrow ? 46 : 28;
  const rows = bottom + 84;
  stage.clear(rows + row * r.runs.length + 8);
  const losses = r.runs.flatMap((run) => run.loss);
  const y = scale([Math.min(...losses) * 0.9, Math.max(...losses) * 1.1], [bottom, top], true);
  const x = scale(reach(r, state), [left, right], true);
  const [least, most] = y.domain;
  stage.axis("left", y, { at: left, title: "loss", values: decades(least, most, most / least < 30 ? [1, 2, 5] : [1, 3]), format: (v) => digits(v), grid: right - left });
  stage.axis("bottom", x, { at: bottom, values: x.ticks(stage.narrow ? 4 : 5), format: FORMAT[state.against], title: TITLES[state.against] });
  for (const run of r.runs) {
    const points = run.x.map((v, n) => [x(v), y(run.loss[n])]).slice(1).filter(([px]) => px >= left && px <= right + 0.5);
    stage.path(points, { stroke: COLOURS[run.i], "stroke-dasharray": DASHES[run.i], "stroke-width": run.i ? 2 : 2.5, "stroke-linejoin": "round" });
  }
  const at = y(Math.max(least, Math.min(most, state.target)));
  stage.path([[left, at], [right, at]], { "stroke-width": 1.5, "stroke-dasharray": "3 3" });
  stage.add("rect", { x: right - 26, y: at - 9, width: 26, height: 18, rx: 4, fill: "var(--lk-handle)", class: "lk-target" });
  stage.text(right - 13, at + 5, "↕", { anchor: "middle", style: "fill: var(--lk-paper)" });
  for (const run of r.runs) {
    if (run.reaches === null || run.reaches === 0) continue;
    stage.add("circle", { cx: x(run.to_target), cy: y(run.loss[run.reaches]), r: 5, fill: COLOURS[run.i], stroke: "var(--lk-paper)", "stroke-width": 1.5 });
  }
  ranking(stage, r, state, { rows, row, right });
  const move = (px, py) => {
    if (py > bottom + 12) return;
    const wanted = y.invert(Math.max(top, Math.min(bottom, py)));
    set("target", TARGETS.reduce((best, v) => (Math.abs(Math.log(v / wanted)) < Math.abs(Math.log(best / wanted)) ? v : best)));
  };
  stage.drag(move, (px, py) => Math.abs(py - at) < 22 && px > right - 60);
}

// The axis stands still while the link's dial moves, so that the runs move along it.
function reach(r, state) {
  if (state.against !== "seconds") return [Math.min(...r.runs.map((run) => run.x[1])) * 0.8, Math.max(...r.runs.map((run) => run.x.at(-1))) * 1.2];
  const ends = state.curves.map((curve) => [line(curve, 1, state), line(curve, curve.loss.length - 1, state)]);
  const low = Math.min(...ends.map(([[fixed, port]]) => fixed + port / BETAS.at(-1)));
  return [low * 0.8, Math.max(...ends.map(([, [fixed, port]]) => fixed + port / BETAS[0])) * 1.2];
}

// Who is there first: a bar each, and in seconds the links on which it beats the plain run.
function ranking(stage, r, state, { rows, row, right }) {
  const timed = state.against === "seconds";
  const names = stage.narrow ? 0 : 150;
  const bars = right - names - (stage.narrow ? 78 : timed ? 262 : 90);
  const longest = Math.max(...r.runs.map((run) => (run.to_target < Infinity ? run.to_target : 0))) || 1;
  stage.text(0, rows - 12, `to a loss of ${digits(state.target)}`, { kind: "bold" });
  if (timed) stage.text(right, rows - 12, "sooner than plain", { anchor: "end", kind: "muted" });
  r.order.forEach((i, place) => {
    const run = r.runs[i];
    const y = rows + place * row;
    const [wordsY, barY] = stage.narrow ? [y + 14, y + 20] : [y + 17, y + 4];
    stage.path([[0, wordsY - 5], [26, wordsY - 5]], { stroke: COLOURS[i], "stroke-dasharray": DASHES[i], "stroke-width": i ? 2.5 : 3 });
    stage.text(32, wordsY, run.name);
    const there = run.to_target < Infinity;
    const width = there ? (run.to_target / longest) * bars : 0;
    stage.rect(names, barY, width, 18, COLOURS[i]);
    stage.text(names + width + 6, barY + 14, there ? written(run.to_target, state) : "not there at the end", { kind: there ? "bold" : "muted" });
    if (timed && i && run.sooner) stage.text(right, stage.narrow ? wordsY : barY + 14, where(run.sooner), { anchor: "end" });
  });
}

const ahead = (r) => (r.first && r.plain.to_target < Infinity ? r.plain.to_target / r.first.to_target : null);

export default interactive({
  title: "Fewer bytes: who is there first?",
  defaults,
  controls: [
    { kind: "choice", name: "against", label: "what counts", options: [["steps", "steps"], ["bytes", "bytes"], ["seconds", "seconds"]] },
    { kind: "slider", name: "target", label: "loss to reach", values: TARGETS, format: (v) => digits(v) },
    { kind: "slider", name: "beta", label: "link", values: BETAS, format: bits, when: (s) => s.against === "seconds" },
    { kind: "toggle", name: "coding", label: "encoding and decoding take their time", when: (s) => s.against === "seconds" },
    { kind: "slider", name: "alpha", label: "latency α", values: [0, ...decades(1e-6, 0.1)], format: seconds, more: true, when: (s) => s.against === "seconds" },
    { kind: "slider", name: "compute_s", label: "computation of a step", values: [0, ...decades(1e-4, 1)], format: (s) => seconds(short(s)), more: true, when: (s) => s.against === "seconds" },
  ],
  more: "Latency, computation",
  compute,
  describe,
  draw,
  readouts: (r, state) => {
    const best = r.first ?? r.plain;
    const times = ahead(r);
    return [
      { key: "first", label: "first", value: r.first?.name ?? "nobody", text: r.first?.name ?? "nobody", strong: true },
      { key: "to_target", label: "it takes", value: best.to_target, text: written(best.to_target, state), strong: true },
      { key: "ahead", label: "times less than plain", value: times ?? "none", text: times ? digits(times, 3) : "–", strong: true },
      ...(state.against === "seconds" ? [{ key: "pays", label: "its exchange alone pays", value: best.pays.join(" "), text: best.i ? where(best.pays) : "–" }] : []),
    ];
  },
});
