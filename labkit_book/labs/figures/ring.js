// Ring all-reduce, round by round (Patarasuk and Yuan 2009): who holds whose share of each chunk, and what it has cost.

import { bytes, count, decades, rate, seconds } from "../../../labkit/show/figures/common.js";
import { interactive } from "../../../labkit/show/figures/interactive.js";

const defaults = { K: 4, n: 250000, itemsize: 4, alpha: 25e-6, beta: 1.25e9, round: 0 };
const SIZES = [2, 10, 250, 2500, 25000, 250000, 2500000, 25000000];
const lastRound = ({ K }) => 2 * (K - 1);

// State of the ring after state.round rounds. holds[worker][chunk]: whose shares are in it, in the order in which they were
// added; moves: the messages of that round; sent: bytes out of each worker's port so far.
export function compute({ K, n, itemsize, alpha, beta, round }) {
  const edges = Array.from({ length: K + 1 }, (_, i) => Math.floor((i * n) / K));
  const size = edges.slice(1).map((edge, i) => edge - edges[i]); // elements of each chunk
  const last = 2 * (K - 1);
  const now = Math.min(round, last);
  const holds = Array.from({ length: K }, (_, k) => Array.from({ length: K }, () => [k]));
  const sent = Array(K).fill(0);
  const messages = Array(K).fill(0);
  let moves = [];
  for (let j = 0; j < now; j++) {
    moves = Array.from({ length: K }, (_, k) => {
      const chunk = (((k - j) % K) + K) % K;
      return { from: k, to: (k + 1) % K, chunk, carried: holds[k][chunk], add: j < K - 1 };
    });
    for (const { from, to, chunk, carried, add } of moves) {
      holds[to][chunk] = add ? [...carried, ...holds[to][chunk]] : carried;
      sent[from] += size[chunk] * itemsize;
      messages[from] += size[chunk] > 0 ? 1 : 0;
    }
  }
  const roundSeconds = n > 0 ? alpha + (Math.max(...size) * itemsize) / beta : 0; // its longest chunk's
  return {
    size, last, round: now, holds, moves, sent, messages,
    busiest: Math.max(...sent),
    elapsed_s: now * roundSeconds,
    total_s: last * roundSeconds,
    server_bytes: (K - 1) * n * itemsize, // out of rank 0's port
    server_s: n > 0 ? last * (alpha + (n * itemsize) / beta) : 0,
  };
}

function phase({ round, last }) {
  if (round === 0) return "start";
  if (round === last) return "all-gather, done";
  if (round === last / 2) return "reduce-scatter, done";
  return round < last / 2 ? "reduce-scatter: add" : "all-gather: keep";
}

function describe(r, { K, n, itemsize }) {
  const before = r.round ? `Round ${r.round} of ${r.last}, ${phase(r)}.` : `${K} workers, ${bytes(n * itemsize)} each. Nobody has sent anything.`;
  const full = r.holds.map((row) => row.filter((shares) => shares.length === K).length);
  const done = full[0] === K ? "Every worker holds the whole sum." : `Finished chunks per worker: ${full.join(", ")}.`;
  const server = `Through a server: ${bytes(r.server_bytes)} out of one port, ${seconds(r.server_s)}.`;
  return `${before} ${done} The busiest port has sent ${bytes(r.busiest)} in ${seconds(r.elapsed_s)}. ${server}`;
}

function draw(stage, r, { K, n, itemsize }) {
  const left = stage.narrow ? 20 : 66;
  const barsLeft = Math.round(stage.width * (stage.narrow ? 0.72 : 0.68));
  const cell = (barsLeft - left - 12) / K;
  const [top, row, gap] = [58, stage.narrow ? 30 : 32, 14];
  const y = (k) => top + k * (row + gap);
  stage.clear(y(K) + 26);

  stage.text(left, 14, stage.narrow ? "chunk" : "chunk of the vector", { kind: "muted" });
  r.size.forEach((elements, c) => stage.text(left + (c + 0.5) * cell - 1.5, 34, `${c}`, { anchor: "middle", kind: elements ? "bold" : "muted" }));

  // What has arrived is shown when it has arrived: while messages move, their goals still show what was there before.
  const moving = stage.motion < 1;
  const coming = new Map(moving ? r.moves.map((m) => [`${m.to} ${m.chunk}`, m]) : []);
  for (let k = 0; k < K; k++) {
    stage.text(left - 8, y(k) + row / 2 + 5, stage.narrow ? `${k}` : `worker ${k}`, { anchor: "end" });
    for (let c = 0; c < K; c++) {
      const message = coming.get(`${k} ${c}`);
      const shares = !message ? r.holds[k][c] : message.add ? r.holds[k][c].slice(message.carried.length) : beforeKeep(r, k, c, K);
      piece(stage, left + c * cell, y(k), cell - 3, row, shares, K, r.size[c] > 0);
    }
  }
  for (const move of r.moves) if (r.size[move.chunk]) message(stage, move, { left, cell, row, gap, y, K });
  ports(stage, r, { K, barsLeft, row, y, n, itemsize });
}

// In the all-gather a finished chunk replaces what the worker had: its part of a sum, which it has sent on.
function beforeKeep(r, k, c, K) {
  return Array.from({ length: ((k - c + K) % K) + 1 }, (_, i) => (c + i) % K);
}

// One chunk at one worker: a stripe for each share in the sum, and the same in letters.
function piece(stage, x, y, width, height, shares, K, full) {
  const whole = shares.length === K;
  const box = stage.add("g", {});
  stage.rect(x, y, width, height, "var(--lk-raised)", {}, box);
  if (full) for (const k of shares) stage.rect(x + (k * width) / K, y, width / K + 0.3, height, `color-mix(in srgb, var(--lk-worker-${k}) 45%, var(--lk-paper))`, {}, box);
  stage.rect(x, y, width, height, "none", { stroke: whole && full ? "var(--lk-ink)" : "var(--lk-line)", "stroke-width": whole && full ? 2 : 1, rx: 2 }, box);
  if (full) stage.text(x + width / 2, y + height / 2 + 5, letters(shares, K, width), { anchor: "middle", kind: whole ? "bold" : "", parent: box });
  else stage.text(x + width / 2, y + height / 2 + 5, width > 44 ? "empty" : "–", { anchor: "middle", kind: "muted", parent: box });
}

function letters(shares, K, width) {
  const long = shares.join("+");
  if (long.length * 7.6 <= width) return long;
  if (shares.length === K) return width > 34 ? "sum" : "Σ";
  return width > 46 ? `${shares.length} of ${K}` : `${shares.length}/${K}`;
}

// A message on its way from a worker to the next one below; the last one's goes out at the bottom and comes in at the top.
function message(stage, { from, to, chunk, carried, add }, { left, cell, row, gap, y, K }) {
  const x = left + chunk * cell;
  const wraps = to < from;
  if (stage.motion < 1) {
    const t = stage.motion * stage.motion * (3 - 2 * stage.motion);
    const start = wraps && t > 0.5 ? y(0) - row - gap : y(from);
    const way = wraps ? (t > 0.5 ? 2 * t - 1 : 2 * t) * (row + gap) : t * (row + gap);
    const g = stage.add("g", { opacity: wraps ? Math.max(0, Math.abs(2 * t - 1)) : 1 });
    stage.rect(x + 2, start + way, cell - 7, row, "var(--lk-paper)", { rx: 3 }, g);
    for (const k of carried) stage.rect(x + 2 + (k * (cell - 7)) / K, start + way, (cell - 7) / K + 0.3, row, `var(--lk-worker-${k})`, {}, g);
    stage.rect(x + 2, start + way, cell - 7, row, "none", { rx: 3, stroke: "var(--lk-ink)", "stroke-width": 1.5 }, g);
    return;
  }
  const middle = x + (cell - 3) / 2;
  const head = (y1, y2) => stage.add("line", { x1: middle, x2: middle, y1, y2, stroke: "var(--lk-ink)", "stroke-width": 2, "marker-end": `url(#${stage.id}-arrow)` });
  if (wraps) head(y(0) - gap + 1, y(0) - 1);
  else head(y(to) - gap + 1, y(to) - 1);
  if (cell > 40) stage.text(middle + 6, y(to) - 2, add ? "+" : "=", { kind: "bold" });
}

// Bytes out of each worker's port so far, and where a server's port would end up.
function ports(stage, r, { K, barsLeft, row, y }) {
  const width = stage.width - barsLeft - 6;
  const to = (b) => barsLeft + (r.server_bytes ? (b / r.server_bytes) * width : 0);
  stage.text(barsLeft, 14, stage.narrow ? "sent" : "sent so far, by each port", { kind: "muted" });
  for (let k = 0; k < K; k++) {
    stage.rect(barsLeft, y(k) + 4, width, row - 8, "var(--lk-raised)");
    stage.rect(barsLeft, y(k) + 4, to(r.sent[k]) - barsLeft, row - 8, "communicate");
  }
  const end = to(r.server_bytes);
  stage.add("line", { x1: end, x2: end, y1: y(0) - 6, y2: y(K - 1) + row + 6, stroke: "var(--lk-ink)", "stroke-width": 2, "stroke-dasharray": "4 3" });
  stage.text(end, y(K - 1) + row + 22, stage.narrow ? "a server’s port" : "a server’s port, when done", { anchor: "end" });
}

export default interactive({
  title: "Ring all-reduce: where is each sum made?",
  defaults,
  controls: [
    { kind: "slider", name: "K", label: "workers K", min: 2, max: 8 },
    { kind: "slider", name: "n", label: "vector", values: SIZES, format: (n, { itemsize }) => `${count(n)} elements, ${bytes(n * itemsize)}` },
    { kind: "player", name: "round", label: "round", last: lastRound, format: (j, state) => `${Math.min(j, lastRound(state))} of ${lastRound(state)}, ${phase({ round: Math.min(j, lastRound(state)), last: lastRound(state) })}` },
    { kind: "slider", name: "alpha", label: "latency α", values: decades(1e-6, 1e-2), format: seconds, more: true },
    { kind: "slider", name: "beta", label: "bandwidth β", values: [...decades(1e7, 1e9), 1.25e9, ...decades(2e9, 1e11)], format: rate, more: true },
  ],
  more: "The link",
  panels(state) {
    const some = state.K > 4 ? [state.K - 1, lastRound(state)] : [1, state.K - 1, state.K, lastRound(state)];
    const rounds = [...new Set(some)];
    return rounds.map((round) => [`after round ${round} of ${lastRound(state)}`, { ...state, round }]);
  },
  compute,
  describe,
  draw,
  readouts: (r) => [
    { key: "busiest", label: "sent, busiest port", value: r.busiest, text: bytes(r.busiest), strong: true },
    { key: "elapsed_s", label: "time", value: r.elapsed_s, text: seconds(r.elapsed_s), strong: true },
    { key: "server_bytes", label: "a server’s port, in all", value: r.server_bytes, text: bytes(r.server_bytes) },
    { key: "server_s", label: "a server’s time, in all", value: r.server_s, text: seconds(r.server_s) },
  ],
});
