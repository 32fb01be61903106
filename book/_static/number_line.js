// A number as a reader says it, and a small number line: a guess beside the truth. For guess.js.
globalThis.labkitNumberLine = (() => {
  const FAR = 20, WIDTH = 400, MARGIN = 14;

  const digits = x => Number.isInteger(x) && Math.abs(x) < 1e15 ? x : Number(x.toPrecision(4));

  function amount(x, unit = "") {
    x = digits(x);
    const size = Math.abs(x);
    const text = x !== 0 && (size < 1e-4 || size >= 1e15)
      ? x.toExponential().replace("+", "")
      : x.toLocaleString("en-GB", { maximumSignificantDigits: 17, useGrouping: size >= 1e4 });
    return `${text} ${unit}`.trim();
  }

  function ends(guess, truth) {
    const small = Math.min(guess, truth), large = Math.max(guess, truth);
    if (small > 0 && large / small > FAR) return [small / 2, large * 2, true];
    const left = Math.min(small, 0), right = Math.max(large, 0), room = 0.15 * (right - left) || 1;
    return [left - (left < 0 ? room : 0), right + (right > 0 || left === 0 ? room : 0), false];
  }

  function place(x, [left, right, logarithmic]) {
    return logarithmic ? Math.log(x / left) / Math.log(right / left) : (x - left) / (right - left);
  }

  function draw(unit, guess, truth, colour) {
    const line = ends(guess, truth), at = x => MARGIN + (WIDTH - 2 * MARGIN) * place(x, line);
    const drawn = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${line[2] ? 98 : 84}`, role: "img", class: "labkit-number-line", width: "100%",
      "font-size": 14, fill: "currentColor",
      "aria-label": `your guess ${amount(guess, unit)}; it is ${amount(truth, unit)}`,
    });
    const thin = { stroke: "currentColor", opacity: 0.6 };
    const words = (x, y, name, text) => {
      const anchor = x < WIDTH / 3 ? "start" : x > 2 * WIDTH / 3 ? "end" : "middle";
      drawn.append(svg("text", { x, y, "text-anchor": anchor, class: name, ...(name.startsWith("small") && { "font-size": 11 }) }, text));
    };
    drawn.append(svg("path", { d: `M0 46H${WIDTH}`, class: "axis", ...thin }));
    if (!line[2]) {
      drawn.append(svg("path", { d: `M${at(0)} 42v8`, class: "axis", ...thin }));
      if (Math.abs(at(truth) - at(0)) > 60) words(at(0), 66, "small zero", "0");
    }
    drawn.append(svg("path", { d: `M${at(truth)} 36v20`, class: "truth", stroke: "currentColor", "stroke-width": 4 }));
    drawn.append(svg("path", { d: `M${at(guess)} 46l-7 -9l7 -9l7 9z`, class: "guess", fill: colour, stroke: "currentColor" }));
    words(at(guess), 18, "guess-words", `your guess ${amount(guess, unit)}`);
    words(at(truth), 76, "truth-words", `it is ${amount(truth, unit)}`);
    if (line[2]) words(WIDTH, 94, "small", "logarithmic scale");
    return drawn;
  }

  function svg(tag, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  }

  return { digits, amount, ends, place, draw };
})();
