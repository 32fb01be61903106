// The time of a training step against the number of workers: computation, and the all-reduce that it can't hide.

import { bytes, count, decades, percent, rate, scale, seconds } from "../../../labkit/show/figures/common.js";
import { interactive } from "../../../labkit/show/figures/interactive.js";

const defaults = { P: 2e8, itemsize: 4, t_comp: 0.08, alpha: 0, beta: 1e10, K: 8, algorithm: "ring", buckets: 1, backward: 2 / 3 };
const WORKERS = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024];
const MOST = 2 ** 53; // beyond as many workers: never
const TIE = 1 + 1e-12; // times this near, relatively, tie

// The prices of labkit.collectives: seconds of an all-reduce by K workers of a vector of so many bytes.
const floorLog2 = (K) => (K < 2 ** 31 ? 31 - Math.clz32(K) : Math.floor(Math.log2(K)));
const isPower = (K) => 2 ** floorLog2(K) === K;
const folds = (K) => (isPower(K) ? 0 : 1);
const message = (nbytes, { alpha, beta }) => alpha + nbytes / beta;
const FORMS = {
  ring: (K, nbytes, link) => 2 * (K - 1) * message(nbytes / K, link),
  tree: (K, nbytes, link) => 2 * (floorLog2(K) + folds(K)) * message(nbytes, link),
  halving: (K, nbytes, link) =>
    2 * (floorLog2(K) + folds(K)) * link.alpha + (2 * (K - 1) * nbytes) / K / link.beta,
  doubling: (K, nbytes, link) => (floorLog2(K) + 2 * folds(K)) * message(nbytes, link),
  naive: (K, nbytes, link) => 2 * (K - 1) * message(nbytes, link),
};

// One step of K workers. The backward pass is a part of the computation; each of L buckets is summed when its gradients are
// there and the bucket before it is through (lab 2.2, overlap).
function step(K, { P, itemsize, t_comp, alpha, beta, algorithm, buckets, backward }) {
  const each = FORMS[algorithm](K, (P * itemsize) / buckets, { alpha, beta });
  let free = 0;
  for (let l = 1; l <= buckets; l++) free = Math.max(free, (backward * t_comp * l) / buckets) + each;
  const t_comm = buckets * each;
  const step_s = (1 - backward) * t_comp + free;
  const exposed_s = Math.max(0, step_s - t_comp);
  return { K, t_comp, t_comm, step_s, exposed_s, hidden_s: Math.max(0, t_comm - exposed_s), share: step_s > 0 ? exposed_s / step_s : 0 };
}

// The smallest K whose all-reduce takes longer than the computation; null if there is none.
function takeover(state) {
  const longer = (K) => step(K, state).t_comm > state.t_comp * TIE;
  if (["ring", "naive", "halving"].includes(state.algorithm)) {
    if (!longer(MOST)) return null; // grows with K
    let [low, high] = [1, MOST];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (longer(middle)) high = middle;
      else low = middle;
    }
    return high;
  }
  for (let m = 0; m <= 52; m++) for (const K of [2 ** m, 2 ** m + 1]) if (longer(K)) return K; // the same until 2^(m+1)
  return null;
}

export function compute(state) {
  return { ...step(state.K, state), bars: WORKERS.map((K) => step(K, state)), takeover: takeover(state) };
}

function describe(r, state) {
  const how = state.buckets > 1 ? `, ${seconds(r.hidden_s)} of it behind the backward pass` : "";
  return (
    `${state.K} workers, ${NAMES[state.algorithm]}: a step takes ${seconds(r.step_s)}: ${seconds(r.t_comp)} of computation and ` +
    `${seconds(r.t_comm)} of communication${how}. ${percent(r.share)} of the step is nothing but communication. ${sinceWhen(r)}.`
  );
}

const NAMES = { ring: "ring", tree: "tree", halving: "halving", doubling: "doubling", naive: "server" };
const sinceWhen = (r) => (r.takeover ? `Communication first takes longer than computation at K = ${count(r.takeover)}` : "Communication never takes longer than computation");

function draw(stage, r, state, set) {
  const bottom = stage.narrow ? 270 : 290;
  stage.clear(bottom + 66);
  const shown = r.bars.some((b) => b.K === state.K) ? r.bars : [...r.bars, r].sort((a, b) => a.K - b.K);
  const left = stage.narrow ? 46 : 58;
  const top = 44;
  const width = (stage.width - left - 4) / shown.length;
  const most = Math.max(...shown.map((b) => b.step_s)) || 1;
  // Where the tallest bars would flatten the one that is looked at, they run out of the picture.
  const ceiling = Math.min(most, Math.max(4 * state.t_comp, 1.6 * r.step_s)) * 1.02;
  const y = scale([0, ceiling], [bottom, top]);
  const [unit, factor] = ceiling < 1e-3 ? ["µs", 1e6] : ceiling < 1 ? ["ms", 1e3] : ["s", 1];
  const marks = scale([0, ceiling * factor], [bottom, top]);
  stage.axis("left", marks, { at: left, title: `step (${unit})`, grid: stage.width - left - 4, format: (v) => v.toLocaleString("en-GB") });

  shown.forEach((bar, i) => {
    const x = left + i * width + width * 0.12;
    const w = width * 0.76;
    const here = bar.K === state.K;
    const g = stage.add("g", { opacity: here ? 1 : 0.62 });
    const high = (s) => Math.max(top - 6, y(s));
    stage.rect(x, high(bar.t_comp), w, bottom - high(bar.t_comp), "compute", {}, g);
    if (bar.hidden_s > 0) stage.rect(x + w * 0.55, high(bar.t_comp), w * 0.45, high(bar.t_comp - bar.hidden_s) - high(bar.t_comp), "communicate", {}, g);
    stage.rect(x, high(bar.step_s), w, high(bar.t_comp) - high(bar.step_s), "communicate", {}, g);
    if (bar.step_s > ceiling) stage.text(x + w / 2, top - 10, "↑", { anchor: "middle", kind: "muted" });
    if (here) stage.rect(x - 1.5, high(bar.step_s) - 1.5, w + 3, bottom - high(bar.step_s) + 1.5, "none", { stroke: "var(--lk-ink)", "stroke-width": 2 });
    if (here || !crowded(i, shown, state.K, stage)) stage.text(x + w / 2, bottom + 18, `${bar.K}`, { anchor: "middle", kind: here ? "bold" : "" });
  });
  stage.text((left + stage.width) / 2, bottom + 38, "workers K", { anchor: "middle" });
  const parts = [["compute", "compute"], ["communicate", "communicate"]];
  stage.legend(left, bottom + 62, parts);
  boundary(stage, r, shown, { left, width, bottom, top });
  stage.drag((px) => set("K", shown[Math.max(0, Math.min(shown.length - 1, Math.floor((px - left) / width)))].K));
}

// On a phone every other number has room, and none beside the chosen one.
function crowded(i, shown, K, stage) {
  if (!stage.narrow) return false;
  const chosen = shown.findIndex((b) => b.K === K);
  return Math.abs(i - chosen) === 1 || Math.abs(i - chosen) % 2 === 1;
}

// The line between the workers that compute longer and those that communicate longer, at most at the edge of the picture.
function boundary(stage, r, shown, { left, width, bottom, top }) {
  const first = r.takeover ? shown.findIndex((b) => b.K >= r.takeover) : -1;
  const words = r.takeover ? `K ≥ ${count(r.takeover)}: communication longer` : "communication never longer";
  const at = first < 0 ? stage.width : left + first * width;
  if (first >= 0) stage.path([[at, bottom], [at, top - 26]], { "stroke-dasharray": "5 4", "stroke-width": 1.5 });
  stage.inside(stage.text(at + 6, top - 26 + 9, words, { kind: "bold halo" }));
}

const size = (P, { itemsize }) => `${count(P)}, ${bytes(P * itemsize)}`;

export default interactive({
  title: "When does a step spend more time talking than computing?",
  defaults,
  controls: [
    { kind: "slider", name: "K", label: "workers K", values: WORKERS },
    { kind: "slider", name: "P", label: "parameters P", values: decades(1e5, 1e12), format: size },
    { kind: "slider", name: "t_comp", label: "computation", values: decades(1e-3, 10, [1, 1.5, 2, 3, 4, 6, 8]), format: seconds },
    { kind: "slider", name: "beta", label: "bandwidth β", values: decades(1e7, 1e12, [1, 1.25, 2, 5]), format: rate },
    { kind: "choice", name: "algorithm", label: "all-reduce", options: Object.entries(NAMES) },
    { kind: "slider", name: "alpha", label: "latency α", values: [0, ...decades(1e-6, 1e-2)], format: seconds, more: true },
    { kind: "slider", name: "buckets", label: "buckets, sent while computing", values: [1, 2, 4, 8, 16, 32], format: (L) => (L === 1 ? "1: no overlap" : `${L}`), more: true },
    { kind: "choice", name: "itemsize", label: "bytes a parameter", options: [[1, "1"], [2, "2"], [4, "4"], [8, "8"]], more: true },
  ],
  more: "Latency, overlap, precision",
  compute,
  describe,
  draw,
  readouts: (r) => [
    { key: "step_s", label: "step", value: r.step_s, text: seconds(r.step_s), strong: true },
    { key: "t_comm", label: "communication", value: r.t_comm, text: seconds(r.t_comm), strong: true },
    { key: "share", label: "of the step, not hidden", value: r.share, text: percent(r.share), strong: true },
    { key: "takeover", label: "exceeds computation", value: r.takeover ?? "never", text: r.takeover ? `from K = ${count(r.takeover)}` : "never" },
  ],
});
