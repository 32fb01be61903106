// A figure's frame: title, controls, picture, numbers, and the same in words for who cannot see the picture.
//
// export default interactive({
//   title       the question that the figure answers
//   defaults    every name of the state and where it begins; the same as the Python side's (null for labkit's own data)
//   controls    [{kind, name, label, ...}]: slider (min, max, step or values; format, hint), choice (options), toggle,
//               player (last, format); `more: true` puts one into a fold-out headed spec.more, `when(state)` hides it else
//   compute     state => numbers: pure, also exported by itself, and held against labkit's by a test
//   draw        (stage, numbers, state, set, read) => draws everything anew; stage.js; set(name, value) moves the model, and
//               read() is its state by then
//   readouts    (numbers, state) => [{key, label, value, text, strong}], shown under the picture
//   describe    (numbers, state) => the picture in words
//   panels      state => [[caption, state], ...]: what the still picture shows side by side, where that is more than the state
// })
// Its state lives in a model: anywidget's in a notebook, pageModel() on a page of the book.

import { html } from "./common.js";
import { Stage } from "./stage.js";

const SAY_MS = 700; // the words are spoken once the reader has stopped moving
const MOVE_MS = 600; // a step of a player in motion
const PACE_MS = 1200; // from step to step while it plays

const calm = () => globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;

// -- one control each: returns {node, show(state)}

function slider(control, state, set) {
  const { name, label, values, format = String, hint } = control;
  const bounds = (now) => (values ? [0, values.length - 1, 1] : ["min", "max", "step"].map((k) => of(control[k] ?? 1, now)));
  const words = html("span", { class: "lk-value", "aria-hidden": "true" });
  const input = html("input", { type: "range" });
  input.oninput = () => set(name, values ? values[Number(input.value)] : Number(input.value));
  const title = html("span", {}, label);
  if (hint) title.append(" ", html("small", {}, hint));
  const node = html("label", { class: "lk-control", "data-control": name }, html("span", { class: "lk-label" }, title, words), input);
  const show = (now) => {
    const [min, max, step] = bounds(now);
    Object.assign(input, { min, max, step });
    input.value = values ? nearest(values, now[name]) : now[name];
    words.textContent = format(now[name], now);
    input.setAttribute("aria-valuetext", words.textContent);
  };
  show(state);
  return { node, show };
}

function choice({ name, label, options }, state, set) {
  const group = `lk-${name}-${Math.random().toString(36).slice(2)}`;
  const inputs = options.map(([value, words]) => {
    const input = html("input", { type: "radio", name: group, value });
    input.onchange = () => set(name, value);
    return [value, input, html("label", {}, input, html("span", {}, words))];
  });
  const legend = html("legend", {}, label);
  const node = html("fieldset", { class: "lk-control lk-choice", "data-control": name }, legend);
  node.append(html("div", { class: "lk-options" }, ...inputs.map(([, , e]) => e)));
  const show = (now) => inputs.forEach(([value, input]) => (input.checked = value === now[name]));
  show(state);
  return { node, show };
}

function toggle({ name, label }, state, set) {
  const input = html("input", { type: "checkbox" });
  input.onchange = () => set(name, input.checked);
  const node = html("label", { class: "lk-control lk-toggle", "data-control": name }, input, html("span", {}, label));
  const show = (now) => (input.checked = Boolean(now[name]));
  show(state);
  return { node, show };
}

// Back, play, step, start again; and a slider over all steps. `last(state)` is the number of the last one.
function player({ name, label, last, format }, state, set, motion) {
  let timer = 0;
  let now = state;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  };
  const go = (step) => set(name, Math.max(0, Math.min(last(now), step)));
  const jump = (step) => {
    stop();
    motion.end();
    go(step);
  };
  const on = () => {
    if (now[name] >= last(now)) return stop();
    motion.begin();
    go(now[name] + 1);
  };
  const button = (words, act) => html("button", { type: "button", onclick: act }, words);
  const reset = button("Start", () => jump(0));
  const back = button("Back", () => jump(now[name] - 1));
  const play = button("Play", () => {
    if (timer) return stop();
    if (now[name] >= last(now)) go(0);
    timer = setInterval(on, PACE_MS);
    play.textContent = "Pause";
    on();
  });
  const step = button("Step", () => (stop(), on()));
  const track = slider({ name, label, min: 0, max: last, step: 1, format }, state, (_, step) => jump(step));
  const node = html("div", { class: "lk-player" }, html("div", { class: "lk-buttons" }, reset, back, play, step), track.node);
  const show = (state) => {
    now = state;
    track.show(now);
    const at = now[name];
    for (const [b, off] of [[reset, at <= 0], [back, at <= 0], [step, at >= last(now)]]) b.setAttribute("aria-disabled", off);
    if (at >= last(now) && timer) stop();
    if (at > last(now)) go(at);
  };
  show(state);
  return { node, show, stop };
}

const of = (value, state) => (typeof value === "function" ? value(state) : value);
const nearest = (values, x) => values.reduce((best, v, i) => (Math.abs(v - x) < Math.abs(values[best] - x) ? i : best), 0);
const MAKE = { slider, choice, toggle, player };

// -- the figure

export function interactive(spec) {
  return {
    defaults: spec.defaults,
    compute: spec.compute,
    // What stands where nobody can move anything: still.js makes a picture of it.
    still(state) {
      const panels = spec.panels?.(state) ?? [["", state]];
      return panels.map(([caption, now]) => {
        const [stage, numbers] = [new Stage(), spec.compute(now)];
        if (panels.length > 1) stage.width = 320;
        spec.draw(stage, numbers, now, () => {}, () => now);
        return { caption, stage, words: spec.describe(numbers, now) };
      });
    },
    render({ model, el }) {
      const names = Object.keys(spec.defaults);
      const read = () => Object.fromEntries(names.map((name) => [name, model.get(name) ?? spec.defaults[name]]));
      const set = (name, value) => {
        if (model.get(name) === value) return;
        model.set(name, value);
        model.save_changes();
      };
      const stage = new Stage();
      const motion = mover(stage, () => draw());
      const parts = spec.controls.map((c) => ({ ...c, ...(c.make ?? MAKE[c.kind])(c, read(), set, motion) }));
      const placed = (more) => parts.filter((p) => Boolean(p.more) === more).map((p) => p.node);
      const controls = html("div", { class: "lk-controls" }, ...placed(false));
      const tiles = html("dl", { class: "lk-readouts" });
      const spoken = html("p", { class: "lk-spoken", "aria-live": "polite" });
      const root = html("div", { class: "lk", role: "group", "aria-label": spec.title });
      root.append(html("style", {}, STYLE), html("p", { class: "lk-title" }, spec.title), controls);
      let fold = null;
      if (parts.some((p) => p.more)) {
        const inside = html("div", { class: "lk-controls" }, ...placed(true));
        fold = html("details", { class: "lk-more" }, html("summary", {}, spec.more ?? "More settings"), inside);
        root.append(fold);
      }
      root.append(stage.node, tiles, spoken);

      // The controls follow every change at once, for the next key may come before the next frame; the picture is drawn once a frame.
      const follow = () => {
        for (const p of parts) {
          p.show(read()); // anew for each: one may move another
          p.node.hidden = p.when ? !p.when(read()) : false;
        }
        if (fold) fold.hidden = parts.every((p) => !p.more || p.node.hidden);
      };
      let saying = 0;
      const draw = (still = false) => {
        const state = read();
        const numbers = spec.compute(state);
        spec.draw(stage, numbers, state, set, read);
        const words = spec.describe(numbers, state);
        stage.node.setAttribute("aria-label", words);
        readouts(tiles, spec.readouts(numbers, state));
        if (still) return;
        clearTimeout(saying);
        saying = setTimeout(() => (spoken.textContent = words), SAY_MS);
      };
      let waiting = 0;
      const changed = () => {
        follow();
        waiting ||= requestAnimationFrame(() => ((waiting = 0), draw()));
      };
      names.forEach((name) => model.on(`change:${name}`, changed));
      const resized = new ResizeObserver(([entry]) => {
        const width = Math.floor(entry.contentRect.width);
        if (width > 0 && width !== stage.width) ((stage.width = width), draw(true));
      });
      el.append(root);
      follow();
      stage.width = Math.floor(controls.getBoundingClientRect().width) || stage.width;
      draw(true);
      resized.observe(controls);
      return () => {
        resized.disconnect();
        motion.end();
        parts.forEach((p) => p.stop?.());
        clearTimeout(saying);
        cancelAnimationFrame(waiting);
        names.forEach((name) => model.off(`change:${name}`, changed));
        root.remove();
      };
    },
  };
}

// Numbers under the picture. Each has a key and its value in SI units, for tests and for who looks.
function readouts(list, items) {
  list.replaceChildren(
    ...items.map(({ key, label, value, text, strong }) =>
      html("div", { class: strong ? "lk-strong" : "" }, html("dt", {}, label), html("dd", { "data-key": key, "data-value": value }, text)),
    ),
  );
}

// Runs stage.motion from 0 to 1; readers who want no motion see the end of it at once.
function mover(stage, draw) {
  let frame = 0;
  const end = () => {
    cancelAnimationFrame(frame);
    stage.motion = 1;
  };
  const begin = () => {
    end();
    if (calm()) return;
    const began = performance.now();
    stage.motion = 0;
    const tick = (now) => {
      stage.motion = Math.max(0, Math.min(1, (now - began) / MOVE_MS));
      draw();
      if (stage.motion < 1) frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
  };
  return { begin, end };
}

// -- a model without a kernel, for a page: what figures use of anywidget's

export function pageModel(state) {
  const values = { ...state };
  const heard = {};
  return {
    get: (name) => values[name],
    set(name, value) {
      if (values[name] === value) return;
      values[name] = value;
      (heard[`change:${name}`] ?? []).forEach((f) => f());
    },
    save_changes() {},
    on: (event, f) => (heard[event] ??= []).push(f),
    off(event, f) {
      heard[event] = (heard[event] ?? []).filter((g) => g !== f);
    },
  };
}
