// What all figures share: numbers as people read them, elements, scales. sources.py joins the shared files with STYLE
// (figures.css and the palette) and with one figure's file into one scope, where the imports between them are gone: names here
// and in a figure must differ. What a figure is made of: interactive.js.

const SVG = "http://www.w3.org/2000/svg";

// -- numbers as people read them: four digits, SI prefixes

export function digits(x, n = 4) {
  if (!Number.isFinite(x)) return x > 0 ? "∞" : x < 0 ? "−∞" : "–";
  const plain = Number(x.toPrecision(n));
  const size = Math.abs(plain);
  if (size && (size < 1e-4 || size >= 1e6)) {
    const [m, e] = plain.toExponential().split("e");
    return `${m}·10${[...String(Number(e))].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}`;
  }
  return plain.toLocaleString("en-GB", { maximumFractionDigits: 12 }).replace("-", "−");
}

function prefixed(x, unit, prefixes) {
  if (x === 0 || !Number.isFinite(x)) return `${digits(x)} ${unit}`;
  const size = Math.abs(Number(x.toPrecision(4)));
  const [factor, prefix] = prefixes.find(([f]) => size >= f) ?? prefixes.at(-1);
  return `${digits(x / factor)} ${prefix}${unit}`;
}

const UP = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
export const seconds = (x) => prefixed(x, "s", [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]);
export const bytes = (x) => prefixed(x, "B", UP);
export const rate = (x) => prefixed(x, "B/s", UP);
export const bits = (x) => prefixed(8 * x, "bit/s", UP); // of a rate in bytes per second
export const percent = (x) => `${(100 * x).toFixed(1)} %`;
export function count(x) {
  const [factor, word] = [[1e12, " trillion"], [1e9, " billion"], [1e6, " million"], [1, ""]].find(([f]) => x >= f) ?? [1, ""];
  return digits(x / factor) + word;
}

// The values low ... high of a logarithmic slider: m · 10^e for each mantissa m.
export function decades(low, high, mantissas = [1, 2, 5]) {
  const values = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const m of mantissas) values.push(Number(`${m}e${e}`));
  return values.filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
}

// -- elements

const FOCUSABLE = ["input", "button", "summary", "select"];

export function html(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  if (FOCUSABLE.includes(tag)) e.setAttribute("data-lm-suppress-shortcuts", "true"); // its keys are not JupyterLab's
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

export function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") e.style.cssText += `;${value}`;
    else if (String(value).includes("var(")) e.style.setProperty(name, value); // variables belong to style, not to attributes
    else if (value != null) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

// -- scales: from data to pixels and back

export function scale([a, b], [p, q], logarithmic = false) {
  const f = logarithmic ? Math.log : (x) => x;
  const to = (x) => p + ((f(x) - f(a)) / (f(b) - f(a))) * (q - p);
  to.invert = (y) => {
    const x = f(a) + ((y - p) / (q - p)) * (f(b) - f(a));
    return logarithmic ? Math.exp(x) : x;
  };
  to.domain = [a, b];
  to.range = [p, q];
  to.ticks = (n = 5) => (logarithmic ? logTicks(a, b, n) : ticks(a, b, n));
  return to;
}

export function ticks(a, b, n = 5) {
  const raw = (b - a) / n;
  if (!(raw > 0)) return [a];
  const ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * ten).find((s) => s >= raw * (1 - 1e-9));
  const found = [];
  for (let i = Math.ceil(a / step - 1e-9); i * step <= b + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function logTicks(a, b, n) {
  const all = decades(a, b, [1]);
  if (all.length < 3) return decades(a, b, [1, 2, 5]);
  const every = Math.ceil(all.length / n);
  return all.filter((_, i) => i % every === 0);
}
