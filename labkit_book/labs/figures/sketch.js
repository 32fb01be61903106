// Draw a curve before the answer shows: by mouse, by finger, or by two sliders; then both stand in one picture.

import { digits, html, percent, scale } from "../../../labkit/show/figures/common.js";
import { interactive } from "../../../labkit/show/figures/interactive.js";

const defaults = { asked: null, drawn: null, column: 1, shown: false };
const SWIPE_MS = 250; // two touches within this are one stroke

const unseal = ({ sealed }) => JSON.parse(atob(sealed));

export function compute({ asked, drawn, column, shown }) {
  const truth = unseal(asked);
  const points = asked.x.map((x, i) => ({ x, guess: drawn[i], truth: truth[i], given: i < asked.given }));
  const open = points.filter((p) => !p.given);
  const guessed = open.filter((p) => p.guess !== null);
  const off = guessed.map((p) => Math.abs(p.guess - p.truth) / Math.abs(p.truth));
  return {
    points, missing: open.length - guessed.length, guessed: guessed.length, at: points[column], known: shown ? points.length : asked.given,
    worst: shown && guessed.length ? guessed[off.indexOf(Math.max(...off))] : null,
    error: shown && guessed.length ? off.reduce((a, b) => a + b, 0) / off.length : null, // relative, on average
  };
}

const near = (x) => digits(x, 3);

function describe(r, { asked, shown }) {
  const { at } = r;
  const said = at.guess === null ? "no guess yet" : `your guess is ${near(at.guess)}`;
  const told = shown || at.given ? `, it is ${near(at.truth)}` : "";
  const sum = r.error !== null ? ` Your guesses are ${percent(r.error)} off on average.` : shown ? "" : ` ${r.missing} places to go.`;
  return `${asked.question}: ${asked.y_label} against ${asked.x_label}. At ${digits(at.x)} ${at.given ? "" : said}${told}.${sum}`.replace(" , it is", " it is");
}

// The guesses with one more; between two points of one stroke what lies between is drawn too.
function stroke(stage, state, column, y) {
  const drawn = [...state.drawn];
  const { asked } = state;
  const before = stage.pen && performance.now() - stage.pen.time < SWIPE_MS ? stage.pen : { column, y };
  const [from, to] = [Math.min(before.column, column), Math.max(before.column, column)];
  for (let i = from; i <= to; i++) {
    const value = before.column === column ? y : before.y + ((y - before.y) * (i - before.column)) / (column - before.column);
    if (i >= asked.given) drawn[i] = rounded(value, asked);
  }
  stage.pen = { column, y, time: performance.now() };
  return drawn;
}

const rounded = (y, { low, high }) => Math.max(low, Math.min(high, Number((Math.round((y - low) / ((high - low) / 200)) * ((high - low) / 200) + low).toPrecision(6))));

function draw(stage, r, state, set, read) {
  const { asked, shown } = state;
  const n = asked.x.length;
  const [left, right, top, bottom] = [stage.narrow ? 40 : 48, stage.width - 8, 36, stage.narrow ? 270 : 300];
  stage.clear(bottom + 46);
  const x = scale([-0.5, n - 0.5], [left, right]);
  const y = scale([asked.low, asked.high], [bottom, top]);
  stage.axis("left", y, { at: left, title: asked.y_label, grid: right - left, format: (v) => digits(v) });
  stage.axis("bottom", x, { at: bottom, title: asked.x_label, values: asked.x.map((_, i) => i), format: (i) => digits(asked.x[i]) });
  if (!shown) {
    const half = (x(1) - x(0)) / 2;
    stage.rect(x(state.column) - half, top, 2 * half, bottom - top, "var(--lk-guess)", { opacity: 0.12 });
    if (!r.guessed) stage.text((left + right) / 2, (top + bottom) / 2, "draw your guess here", { anchor: "middle", kind: "big muted halo" });
  }
  const line = (points, more) => points.length > 1 && stage.path(points.map(([i, v]) => [x(i), y(v)]), more);
  const dots = (points, more) => points.forEach(([i, v]) => stage.add("circle", { cx: x(i), cy: y(v), r: 5, "stroke-width": 1.5, stroke: "var(--lk-paper)", ...more }));
  const truth = r.points.slice(0, r.known).map((p, i) => [i, p.truth]);
  const guess = r.points.map((p, i) => [i, p.given ? p.truth : p.guess]).filter(([, v]) => v !== null);
  line(truth, { "stroke-width": 2.5 });
  if (r.guessed) line(guess, { stroke: "var(--lk-guess)", "stroke-dasharray": "7 4", "stroke-width": 2.5 });
  dots(truth, { fill: "var(--lk-ink)" });
  dots(guess.filter(([i]) => i >= asked.given), { fill: "var(--lk-guess)" });
  if (shown) {
    const [i, v] = truth.at(-1);
    const mine = r.points.at(-1).guess;
    const above = mine === null || v >= mine;
    stage.text(x(i) + 4, y(v) + (above ? -12 : 22), "labkit", { anchor: "end", kind: "bold halo" });
    if (mine !== null) stage.text(x(i) + 4, y(mine) + (above ? 22 : -12), "you", { anchor: "end", kind: "bold halo" });
  }
  const at = (px) => Math.max(0, Math.min(n - 1, Math.round(x.invert(px))));
  const pen = (px, py) => {
    const now = read(); // not as it was drawn: the pointer may move more than once in a frame
    if (now.shown || px < left) return;
    const column = at(px);
    set("drawn", stroke(stage, now, column, y.invert(Math.max(top, Math.min(bottom, py)))));
    set("column", column);
  };
  stage.drag(pen, (px, py) => !shown && px >= left && py >= top - 10 && py <= bottom + 10);
}

// The keyboard's pen: one slider chooses the place, the other the height; and the buttons.
function drawing(_, first, set) {
  let state = first;
  const range = (label, oninput) => {
    const words = html("span", { class: "lk-value", "aria-hidden": "true" });
    const input = html("input", { type: "range", oninput });
    const node = html("label", { class: "lk-control" }, html("span", { class: "lk-label" }, html("span", {}, label), words), input);
    return { node, input, say: (text) => ((words.textContent = text), input.setAttribute("aria-valuetext", text)) };
  };
  const where = range(first.asked.x_label, () => set("column", Number(where.input.value)));
  const height = range("your guess there", () => {
    const drawn = [...state.drawn];
    drawn[state.column] = rounded(Number(height.input.value), state.asked);
    set("drawn", drawn);
  });
  const button = (onclick) => html("button", { type: "button", onclick });
  const open = button(() => set("shown", true));
  const again = button(() => (set("drawn", state.asked.x.map(() => null)), set("shown", false)));
  again.textContent = "Start again";
  const node = html("div", { class: "lk-controls", style: "grid-column: 1 / -1" }, where.node, height.node, html("div", { class: "lk-buttons" }, open, again));
  const show = (now) => {
    state = now;
    const { asked, drawn, column, shown } = now;
    const guess = drawn[column];
    const given = column < asked.given;
    Object.assign(where.input, { min: 0, max: asked.x.length - 1, step: 1 });
    where.input.value = column;
    where.say(digits(asked.x[column]));
    Object.assign(height.input, { min: asked.low, max: asked.high, step: (asked.high - asked.low) / 200 });
    height.input.value = guess ?? (asked.low + asked.high) / 2;
    height.say(given ? "given" : guess === null ? "none yet" : near(guess));
    height.node.hidden = given || shown;
    const missing = drawn.some((y, i) => y === null && i >= asked.given);
    open.textContent = missing ? "Give up: show the answer" : "Show the answer";
    const focused = [open, again].some((b) => b.matches(":focus"));
    open.hidden = shown;
    again.hidden = !shown;
    if (focused) (shown ? again : open).focus(); // who pressed the one finds the other in its place
  };
  show(first);
  return { node, show };
}

export default interactive({
  title: "Draw your prediction",
  defaults,
  controls: [{ kind: "own", name: "drawing", make: drawing }],
  compute,
  describe,
  draw,
  readouts: (r, { asked, shown }) =>
    shown
      ? [
          { key: "error", label: "off, on average", value: r.error ?? "none", text: r.error === null ? "no guess" : percent(r.error), strong: true },
          ...(r.worst ? [{ key: "worst", label: `farthest off, at ${digits(r.worst.x)}`, value: r.worst.truth, text: `you ${near(r.worst.guess)}, it is ${near(r.worst.truth)}` }] : []),
        ]
      : [{ key: "missing", label: "places without a guess", value: r.missing, text: `${r.missing} of ${asked.x.length - asked.given}` }],
});
