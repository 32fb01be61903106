// A figure without a browser: as much of a document as a drawing needs, and the drawing as text. `sources.py` runs this in QuickJS
// before a figure's script; no page loads it.

const LETTER = 7; // pixels of an average letter of 13: nobody here can measure words
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], textContent: "" });
    this.style = { cssText: "", setProperty: (name, value) => (this.style.cssText += `;${name}:${value}`) };
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  getAttribute(name) {
    return this.attributes[name];
  }
  addEventListener() {}
  append(...more) {
    this.children.push(...more);
  }
  replaceChildren(...all) {
    this.children = all;
  }
  getComputedTextLength() {
    return LETTER * this.textContent.length;
  }
  toString() {
    const style = this.style.cssText.replace(/^;/, "");
    if (style && !looks.has(style)) looks.set(style, `s${looks.size}`);
    const names = [this.attributes.class, looks.get(style)].filter(Boolean).join(" ");
    const all = Object.entries({ ...this.attributes, ...(names && { class: names }) });
    const inside = escaped(this.textContent) + this.children.join("");
    const head = [this.tag, ...all.map(([name, value]) => `${name}="${escaped(short(value))}"`)].join(" ");
    return inside ? `<${head}>${inside}</${this.tag}>` : `<${head}/>`;
  }
}

const looks = new Map(); // what elements look like, each said once, by the name of its class
const short = (value) => (typeof value === "number" ? Number(value.toFixed(2)) : value);

globalThis.document = { createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag) };
globalThis.atob = (text) => {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const bits = [...text.replace(/=+$/, "")].map((c) => digits.indexOf(c).toString(2).padStart(6, "0")).join("");
  return bits.match(/.{8}/g).map((byte) => String.fromCharCode(parseInt(byte, 2))).join("");
};
Number.prototype.toLocaleString = function (_, { useGrouping = true } = {}) {
  const [whole, rest] = String(this).split(".");
  return (useGrouping ? whole.replace(/\B(?=(\d{3})+$)/g, ",") : whole) + (rest ? `.${rest}` : "");
};

// The picture as SVG text, one panel or two columns of them, and the same in words.
globalThis.still = (name, state, style) => {
  looks.clear();
  const panels = globalThis.labkitFigures[name].still(state);
  const [{ stage }] = panels;
  const [columns, head] = panels.length > 1 ? [2, 24] : [1, 0];
  const [width, high] = [columns * stage.width, head + stage.height];
  const size = { width, height: high * Math.ceil(panels.length / columns) };
  const all = new Element("svg");
  Object.assign(all.attributes, { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${size.width} ${size.height}`, ...size });
  panels.forEach(({ caption, stage: { node } }, i) => {
    const [x, y] = [(i % columns) * stage.width, high * Math.floor(i / columns)];
    const title = new Element("text");
    Object.assign(title, { textContent: caption, attributes: { x: x + 4, y: y + 15, class: "lk-text bold" } });
    Object.assign(node.attributes, { x, y: y + head });
    all.append(...(caption ? [title] : []), node);
  });
  const sheet = new Element("style");
  sheet.toString = () => `<style>${style}\n${[...looks].map(([css, name]) => `.${name}{${css}}`).join("\n")}</style>`;
  all.append(sheet); // last: it knows by then what is drawn
  return [String(all), panels.map(({ words }) => words).join(" ")];
};
