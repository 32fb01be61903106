// Who waits for whom: lanes of compute, wait and communication under a barrier, some slack, none, spare workers, local steps.
// The recurrences of labkit.timing, on labkit's own uniform numbers: state.u[seed][rank][t].

import { digits, percent, scale, seconds } from "../../../labkit/show/figures/common.js";
import { interactive } from "../../../labkit/show/figures/interactive.js";

const defaults = {
  K: 4, slowdown: 1, law: "exponential", spread: 0.5, mean_s: 0.02, method: "sync", slack: 1, server_s: 0, backups: 1, H: 4,
  comm_s: 0.002, T: 10, seed: 0, u: null,
};
const [COMPUTE, WAIT, COMMUNICATE] = [0, 1, 2];
const PAINT = ["compute", "wait", "communicate"];

// The time that is exceeded with probability q, by law: the same mean and deviation, another tail.
const INVERSE = {
  constant: (mean) => () => mean,
  uniform: (mean, spread) => {
    const [low, high] = [mean - Math.sqrt(3) * spread * mean, mean + Math.sqrt(3) * spread * mean];
    return (q) => Math.max(high - (high - low) * q, low);
  },
  exponential: (mean, spread) => (q) => Math.log(q) * -(spread * mean) + (mean - spread * mean),
  pareto: (mean, spread) => {
    const shape = 1 + Math.sqrt(1 + spread ** -2);
    return (q) => ((mean * (shape - 1)) / shape) * q ** (-1 / shape);
  },
};

function computeTimes({ K, T, law, spread, mean_s, slowdown, seed, u }) {
  const inverse = INVERSE[law](mean_s, spread);
  return Array.from({ length: K }, (_, k) => Array.from({ length: T }, (_, t) => (k ? 1 : slowdown) * inverse(1 - u[seed][k][t])));
}

// Each recurrence returns marks[k][t], the times between which worker k does `kinds` one after another in step t (NaN: it
// doesn't), and who used what: grads = [{rank, start, applied, into?}], updates of one or of many gradients.

const grid = (K, T) => Array.from({ length: K }, () => Array(T));

function local(X, H, comm) {
  const [K, T] = [X.length, X[0].length];
  const marks = grid(K, T);
  let clock = Array(K).fill(0);
  for (let t = 0; t < T; t++) {
    const arrive = clock.map((c, k) => c + X[k][t]);
    const meet = (t + 1) % H === 0 || t + 1 === T;
    const last = Math.max(...arrive);
    const leave = arrive.map((a) => (meet ? last : a));
    const end = leave.map((l) => (meet ? l + comm : l));
    for (let k = 0; k < K; k++) marks[k][t] = [clock[k], arrive[k], leave[k], end[k]];
    clock = end;
  }
  return { marks, kinds: [COMPUTE, WAIT, COMMUNICATE], elapsed_s: Math.max(...clock) };
}

function bsp(X, comm) {
  const run = local(X, 1, comm);
  return { ...run, grads: run.marks.flatMap((row, rank) => row.map((m, t) => ({ rank, start: m[0], applied: m[3], into: t }))) };
}

function ssp(X, slack, comm) {
  const [K, T] = [X.length, X[0].length];
  const marks = grid(K, T);
  const pushedLast = []; // when the slowest had pushed step t
  let clock = Array(K).fill(0);
  for (let t = 0; t < T; t++) {
    const pushed = clock.map((c, k) => c + X[k][t] + comm);
    pushedLast.push(Math.max(...pushed));
    const leave = pushed.map((p) => (t < slack ? p : Math.max(p, pushedLast[t - slack])));
    for (let k = 0; k < K; k++) marks[k][t] = [clock[k], clock[k] + X[k][t], pushed[k], leave[k]];
    clock = leave;
  }
  const grads = marks.flatMap((row, rank) => row.map((m) => ({ rank, start: m[0], applied: m[2] })));
  return { marks, kinds: [COMPUTE, COMMUNICATE, WAIT], elapsed_s: Math.max(...clock), grads };
}

// A server that takes its time: first come, first served, of those who come together the smaller rank.
function served(X, comm, server) {
  const [K, T] = [X.length, X[0].length];
  const marks = grid(K, T);
  const pending = X.map((row, k) => ({ came: row[0] + comm, k, t: 0, start: 0 }));
  let [since, n, done] = [0, 0, 0];
  while (pending.length) {
    const first = pending.reduce((best, p) => (p.came < best.came || (p.came === best.came && p.k < best.k) ? p : best));
    pending.splice(pending.indexOf(first), 1);
    const { came, k, t, start } = first;
    const turn = Math.max(came, done);
    if (came >= done) [since, n] = [came, 0];
    done = since + ++n * server;
    marks[k][t] = [start, start + X[k][t], came, turn, done];
    if (t + 1 < T) pending.push({ came: done + X[k][t + 1] + comm, k, t: t + 1, start: done });
  }
  const grads = marks.flatMap((row, rank) => row.map((m) => ({ rank, start: m[0], applied: m[4] })));
  const elapsed_s = Math.max(...marks.map((row) => row[T - 1][4]));
  return { marks, kinds: [COMPUTE, COMMUNICATE, WAIT, COMMUNICATE], elapsed_s, grads };
}

function backup(X, backups, comm) {
  const [K, T] = [X.length, X[0].length];
  const marks = grid(K, T);
  const grads = [];
  let free = Array(K).fill(0);
  const n = Array(K).fill(0);
  let S = 0;
  for (let r = 0; r < T; r++) {
    const begin = free.map((f) => Math.max(S, f));
    const a = begin.map((b, k) => b + X[k][n[k]]);
    const first = a.map((_, k) => k).sort((i, j) => a[i] - a[j] || i - j).slice(0, K - backups);
    const E = Math.max(...first.map((k) => a[k]));
    const before = S;
    S = E + comm;
    for (let k = 0; k < K; k++) {
      const used = first.includes(k);
      const started = used || free[k] <= before || free[k] < E;
      const arrive = started ? a[k] : free[k];
      const leave = used ? E : Math.max(arrive, S);
      const end = used ? S : leave;
      marks[k][r] = [started ? begin[k] : NaN, arrive, leave, end];
      if (used) grads.push({ rank: k, start: begin[k], applied: S, into: r });
      else if (started) marks[k][r].dropped = true;
      if (started) n[k] += 1;
      free[k] = end;
    }
  }
  return { marks, kinds: [COMPUTE, WAIT, COMMUNICATE], elapsed_s: S, grads };
}

const RUN = {
  sync: (X, s) => bsp(X, s.comm_s),
  ssp: (X, s) => ssp(X, s.slack, s.comm_s),
  async: (X, s) => (s.server_s ? served(X, s.comm_s, s.server_s) : ssp(X, X[0].length, s.comm_s)),
  backup: (X, s) => backup(X, Math.min(s.backups, s.K - 1), s.comm_s),
  local: (X, s) => local(X, s.H, s.comm_s),
};

// How many versions passed between the one that a gradient was computed at and its own update (labkit.timing.updates).
function staleness(grads) {
  const upTo = (sorted, x) => sorted.filter((a) => a <= x).length;
  if (grads[0].into === undefined) {
    const order = grads.map((g, i) => ({ ...g, i })).sort((g, h) => g.applied - h.applied || g.rank - h.rank || g.i - h.i);
    const applied = order.map((g) => g.applied);
    return order.map((g, into) => into - Math.min(upTo(applied, g.start), into));
  }
  const applied = [...new Map(grads.map((g) => [g.into, g.applied])).entries()].sort((p, q) => p[0] - q[0]).map(([, a]) => a);
  return grads.map((g) => g.into - Math.min(upTo(applied, g.start), g.into));
}

export function compute(state) {
  const X = computeTimes(state);
  const [K, T] = [X.length, X[0].length];
  const { marks, kinds, elapsed_s, grads } = RUN[state.method](X, state);
  const spans = []; // [rank, step, kind, start, end, whether its gradient is dropped]
  marks.forEach((row, k) =>
    row.forEach((m, t) =>
      kinds.forEach((kind, i) => {
        const [start, end] = [m[i], m[i + 1]];
        const there = start <= end && (start < end || kind === COMPUTE);
        if (there) spans.push([k, t, kind, start, end, kind === COMPUTE && Boolean(m.dropped)]);
      }),
    ),
  );
  const waited = spans.reduce((sum, [, , kind, start, end]) => sum + (kind === WAIT ? end - start : 0), 0);
  const r = { spans, elapsed_s, waiting: waited / (K * elapsed_s), staleness: null, stalest: null, rate: (K * T) / elapsed_s };
  if (grads) {
    const tau = staleness(grads);
    r.staleness = tau.reduce((sum, x) => sum + x, 0) / tau.length;
    r.stalest = Math.max(...tau);
    let [until, used] = [elapsed_s, grads.length];
    if (grads[0].into === undefined) {
      until = Math.min(...Array.from({ length: K }, (_, k) => Math.max(...grads.filter((g) => g.rank === k).map((g) => g.applied))));
      used = grads.filter((g) => g.applied <= until).length; // while all are at work
    }
    r.rate = used / until;
  }
  const free = ssp(X, T, state.comm_s);
  return { ...r, free_s: free.elapsed_s, barrier_s: local(X, 1, state.comm_s).elapsed_s };
}

const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const SAID = {
  sync: () => "a barrier after every step",
  ssp: ({ slack }) => `nobody more than ${plural(slack, "step")} ahead`,
  async: ({ server_s }) => (server_s ? `no barrier, a server busy for ${seconds(server_s)} a gradient` : "no barrier"),
  backup: ({ backups, K }) => `a barrier for the first ${K - Math.min(backups, K - 1)} of ${K}`,
  local: ({ H }) => `a barrier after every ${plural(H, "step")}`,
};
const aged = (r) => (r.staleness === null ? "each its own w" : `${r.staleness.toFixed(2)} (${r.stalest})`);

function describe(r, state) {
  const who = state.slowdown > 1 ? `, worker 0 ${digits(state.slowdown)} times slower` : "";
  const stale = r.staleness === null ? "each worker has parameters of its own" : `gradients are ${r.staleness.toFixed(2)} versions old on average, ${r.stalest} at most`;
  return (
    `${plural(state.K, "worker")}${who}, ${SAID[state.method](state)}. ${state.method === "backup" ? plural(state.T, "round") : `${plural(state.T, "step")} each`} take ${seconds(r.elapsed_s)}; ` +
    `${percent(r.waiting)} of the time is spent waiting; ${digits(r.rate, 3)} gradients a second; ${stale}. ` +
    `If nobody waited they would be done after ${seconds(r.free_s)}.`
  );
}

function draw(stage, r, state) {
  const { K } = state;
  const left = stage.narrow ? 26 : 74;
  const [top, row] = [30, K > 8 ? 20 : 26];
  const gap = K > 8 ? 5 : 7;
  const y = (k) => top + k * (row + gap);
  const bottom = y(K) + 2;
  stage.clear(bottom + (stage.narrow && state.method === "backup" ? 92 : 72));
  const end = Math.max(r.barrier_s, r.elapsed_s, ...r.spans.map((s) => s[4]));
  const [unit, factor] = end < 1 ? ["ms", 1e3] : ["s", 1];
  const x = scale([0, end * factor], [left, stage.width - 6]);
  for (let k = 0; k < K; k++) {
    const slow = k === 0 && state.slowdown > 1;
    stage.text(left - 8, y(k) + row / 2 + 5, stage.narrow ? `${k}` : slow ? `0, slow` : `worker ${k}`, { anchor: "end", kind: slow ? "bold" : "" });
    stage.rect(left, y(k), stage.width - 6 - left, row, "var(--lk-raised)");
  }
  // One path for all spans of a kind: hundreds of rectangles would answer a finger too late.
  const boxes = { compute: "", wait: "", communicate: "", dropped: "" };
  for (const [k, , kind, from, till, dropped] of r.spans) {
    const [a, b] = [x(from * factor), x(till * factor)];
    boxes[dropped ? "dropped" : PAINT[kind]] += `M${a.toFixed(2)} ${y(k)}H${b.toFixed(2)}V${y(k) + row}H${a.toFixed(2)}Z`;
  }
  for (const kind of PAINT) {
    stage.add("path", { d: boxes[kind], fill: `var(--lk-${kind})`, stroke: "var(--lk-paper)", "stroke-width": 0.8 });
    if (kind !== "compute") stage.add("path", { d: boxes[kind], fill: `url(#${stage.id}-${kind})` });
  }
  if (boxes.dropped) stage.add("path", { d: boxes.dropped, fill: "var(--lk-track)", stroke: "var(--lk-muted)", "stroke-dasharray": "3 2" });
  line(stage, x(r.free_s * factor), top, bottom, "no waiting", left);
  for (const [k, t, kind, from, till, dropped] of r.spans) {
    const [a, b] = [x(from * factor), x(till * factor)];
    const fits = kind === COMPUTE && b - a > (t > 8 ? 20 : 13);
    if (fits) stage.text((a + b) / 2, y(k) + row / 2 + 5, `${t + 1}`, { anchor: "middle", style: `fill: ${dropped ? "var(--lk-ink)" : "#fff"}` });
  }
  stage.axis("bottom", x, { at: bottom, title: `time (${unit})`, format: (v) => v.toLocaleString("en-GB") });
  const entries = [["compute", stage.narrow ? "compute" : "compute (number of the step)"], ["wait", "wait"], ["communicate", "communicate"]];
  const [at, dropped] = [left - (stage.narrow ? 20 : 0), ["var(--lk-track)", "dropped"]];
  const rowEnd = stage.legend(at, bottom + 66, entries);
  if (state.method === "backup") stage.legend(stage.narrow ? at : rowEnd, bottom + (stage.narrow ? 86 : 66), [dropped]);
}

// Where the run would end if nobody waited for anybody.
function line(stage, at, top, bottom, words, left) {
  stage.path([[at, bottom], [at, top - 12]], { "stroke-dasharray": "5 4", "stroke-width": 1.5 });
  const right = at > (left + stage.width) / 2;
  stage.text(right ? at - 5 : at + 5, top - 12, words, { anchor: right ? "end" : "start", kind: "halo" });
}

const ms = (values) => values.map((v) => v / 1000);

export default interactive({
  title: "Who waits for whom?",
  defaults,
  controls: [
    { kind: "slider", name: "slowdown", label: "slowdown λ of worker 0", min: 1, max: 5, step: 0.25, format: (v) => (v === 1 ? "1: like the others" : `${digits(v)} times`) },
    { kind: "slider", name: "K", label: "workers K", min: 1, max: 12 },
    { kind: "choice", name: "law", label: "chance in the compute times", options: [["constant", "none"], ["uniform", "bounded"], ["exponential", "exponential tail"], ["pareto", "heavy tail"]] },
    { kind: "choice", name: "method", label: "who may go on", options: [["sync", "barrier"], ["ssp", "slack"], ["async", "no barrier"], ["backup", "backups"], ["local", "local steps"]] },
    { kind: "slider", name: "slack", label: "slack s", min: 0, max: (s) => s.T, format: (s) => plural(s, "step"), when: (s) => s.method === "ssp" },
    { kind: "slider", name: "server_s", label: "a server’s time for each gradient", values: ms([0, 0.5, 1, 2, 3, 4, 5, 7, 10, 15, 20]), format: seconds, when: (s) => s.method === "async" },
    { kind: "slider", name: "backups", label: "backup workers b", min: 0, max: (s) => s.K - 1, format: (b, { K }) => `${Math.min(b, K - 1)}`, when: (s) => s.method === "backup" },
    { kind: "slider", name: "H", label: "local steps H", min: 1, max: (s) => s.T, when: (s) => s.method === "local" },
    { kind: "slider", name: "spread", label: "deviation / mean", min: 0.05, max: 0.55, step: 0.05, format: (v) => v.toFixed(2), when: (s) => s.law !== "constant", more: true },
    { kind: "slider", name: "comm_s", label: "communication", values: ms([0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30]), format: seconds, more: true },
    { kind: "slider", name: "mean_s", label: "mean computation", values: ms([1, 2, 5, 10, 20, 50, 90, 100, 200]), format: seconds, more: true },
    { kind: "slider", name: "seed", label: "draw of chance", min: 0, max: 3, format: (s) => `${s + 1} of 4`, when: (s) => s.law !== "constant", more: true },
  ],
  more: "Deviation, communication, another draw",
  compute,
  describe,
  draw,
  readouts: (r, { T, method }) => [
    { key: "elapsed_s", label: method === "backup" ? plural(T, "round") : `${plural(T, "step")} each`, value: r.elapsed_s, text: seconds(r.elapsed_s), strong: true },
    { key: "waiting", label: "of the time waiting", value: r.waiting, text: percent(r.waiting), strong: true },
    { key: "rate", label: "gradients a second", value: r.rate, text: digits(r.rate, 3), strong: true },
    { key: "staleness", label: "staleness (most)", value: r.staleness ?? "none", text: aged(r), strong: true },
  ],
});
