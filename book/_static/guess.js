/* Predict first, in a page where nothing runs.

   What labkit.show.predict displays becomes a form inside the question's box; the answer and what is said of it, up to the
   next heading, question, argument or claim, stays covered until the reader commits or asks to be shown. What reveal
   displays carries the answer, and their guess is drawn beside it. Guesses stay in the reader's own browser.
   Without this script the answer is one click away, as the notebook's hide-output says.

   sentence says what labkit/show/predict.py does (a test compares them); the number line is number_line.js. */
(() => {
  "use strict";

  const CLOSE = 0.05;
  const { digits, amount, ends, place, draw } = globalThis.labkitNumberLine;
  const NONE = "You made no guess this time.";
  const NEW = "section, .admonition:is(.predict, .why, .check-claim)";

  /* ---- sentences, as labkit says them ---- */

  function sentence(asked, guess, truth) {
    if (asked.choices) {
      if (guess === null) return `It is: ${truth}. ${NONE}`;
      return guess === truth ? `You said ${guess}, and ${truth} it is.` : `You said ${guess}; it is ${truth}.`;
    }
    const itIs = amount(truth, asked.unit);
    if (guess === null) return `It is ${itIs}. ${NONE}`;
    truth = digits(truth);
    const said = amount(guess, asked.unit), off = Math.abs(guess - truth);
    if (off === 0) return `You said ${said}, and ${itIs} it is: exactly right.`;
    if (off <= CLOSE * Math.abs(truth)) {
      const near = Math.ceil(100 * off / Math.abs(truth));
      return `You said ${said}; it is ${itIs}. Well predicted: within ${near} %.`;
    }
    const way = truth > guess ? "more" : "less", begun = `You said ${said}; it is ${itIs}, `;
    if (truth <= 0 || guess <= 0) return `${begun}${amount(off, asked.unit)} ${way} than you thought.`;
    const ratio = Math.max(truth / guess, guess / truth);
    if (ratio < 1.5) return `${begun}${amount(Math.round(100 * off / guess))} % ${way} than you thought.`;
    const times = truth > guess ? "bigger" : "smaller";
    return `${begun}${amount(Number(ratio.toPrecision(3)))} times ${times} than you thought.`;
  }

  /* A number as people write one: 1470; 1,470; 0,5; 1e-3; 12 %; −3. null if it is none. */
  function read(text) {
    let s = text.trim().replace(/\s+of\s+\d+$/, "").replace(/[−–]/g, "-").replace(/(\d)[\s'  ](?=\d{3})/g, "$1");
    s = s.replace(/(\d)\s*([%a-z/][%a-z/ ]*)$/i, (all, digit, unit) => /^e$/i.test(unit) ? all : digit);
    if (/^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$/.test(s)) s = s.replace(/,/g, "");
    else if (/^[+-]?\d*,\d+(e[+-]?\d+)?$/i.test(s)) s = s.replace(",", ".");
    return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(s) && Number.isFinite(Number(s)) ? Number(s) : null;
  }

  /* ---- elements ---- */

  function element(tag, attributes = {}, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...inside);
    return made;
  }

  /* ---- what is kept, where storage is allowed; else for as long as the page is open ---- */

  const kept = new Map(), prefix = `labkit-guess:${location.pathname}:`;

  function recall(key) {
    try {
      const found = JSON.parse(localStorage.getItem(prefix + key));
      return found && typeof found === "object" && "guess" in found ? found : kept.get(key) ?? null;
    } catch { return kept.get(key) ?? null; }
  }
  function keep(key, what) {
    kept.set(key, what);
    try { localStorage.setItem(prefix + key, JSON.stringify(what)); } catch { /* denied or full */ }
  }
  function forget(key) {
    kept.delete(key);
    try { localStorage.removeItem(prefix + key); } catch { /* denied */ }
  }

  /* ---- one question ---- */

  class Question {
    constructor(asking) {
      this.asked = JSON.parse(asking.dataset.asked);
      this.key = this.asked.key;
      const cell = asking.closest("div.cell"), box = cell.previousElementSibling;
      const reveal = document.querySelector(`.labkit-reveal[data-key="${this.key}"]`);
      if (!reveal) throw new Error(`no answer to ${this.asked.question}`);
      const bytes = Uint8Array.from(atob(reveal.dataset.truth), c => c.charCodeAt(0));
      this.truth = JSON.parse(new TextDecoder().decode(bytes));
      this.reveal = reveal;
      this.covered = [cell, ...this.following(cell)];
      this.folds = this.covered.flatMap(e => [...e.querySelectorAll("details.hide")])
        .filter(fold => fold.contains(reveal) || fold.closest(".tag_hide-output"));
      this.panel = element("div", { class: "labkit-guess" });
      if (box && box.matches(".admonition.predict")) box.append(this.panel);
      else cell.before(element("div", { class: "admonition predict" }, this.panel));
      (asking.closest(".cell_output") ?? asking).hidden = true;
      const before = recall(this.key);
      if (before) this.open(before.guess); else this.cover();
    }

    /* What gives the answer away: all from here to the answer, and what is said of it before something new begins. */
    following(cell) {
      const found = [];
      let answered = false;
      for (let e = cell.nextElementSibling; e && !(answered && e.matches(NEW)); e = e.nextElementSibling) {
        found.push(e);
        answered ||= e.contains(this.reveal);
      }
      return found;
    }

    hides(target) { return this.covered.some(e => e.contains(target)); }

    cover() {
      for (const e of this.covered) e.classList.add("labkit-covered");
      for (const fold of this.folds) fold.open = false;
      this.state = "covered";
      this.ask();
    }

    open(guess) {
      for (const e of this.covered) e.classList.remove("labkit-covered");
      for (const fold of this.folds) fold.open = true;
      this.state = "open";
      const said = sentence(this.asked, guess, this.truth);
      this.reveal.replaceChildren(element("p", {}, said));
      this.panel.replaceChildren(element("p", { class: "labkit-said", tabindex: -1 }, said));
      if (guess !== null && !this.asked.choices) this.panel.append(draw(this.asked.unit, guess, this.truth, "var(--labkit-guess)"));
      this.panel.append(element("p", { class: "labkit-quiet" },
        element("button", { type: "button", onclick: () => { forget(this.key); this.cover(); } }, "Ask me again"),
        element("button", { type: "button", onclick: forgetAll }, "Forget my guesses on this page")));
    }

    commit(guess) {
      keep(this.key, { guess });
      this.open(guess);
      this.panel.querySelector(".labkit-said").focus({ preventScroll: true });
    }

    ask() {
      const complaint = element("p", { class: "labkit-complaint", role: "alert", id: `say-${this.key}` });
      const form = element("form", { novalidate: true, "aria-label": this.asked.question });
      const given = this.asked.choices ? this.askChoice(form) : this.askNumber(form);
      form.append(complaint);
      form.addEventListener("submit", event => {
        event.preventDefault();
        const guess = given();
        if (guess !== null) { this.commit(guess); return; }
        complaint.textContent = this.asked.choices ? "Choose one of these first."
          : "Write a number first, such as 12 or 0.5.";
        const field = form.querySelector("input[type=text], input[type=radio]");
        field.setAttribute("aria-invalid", "true");
        field.focus();
      });
      this.panel.replaceChildren(form, element("p", { class: "labkit-quiet" },
        element("button", { type: "button", onclick: () => this.commit(null) }, "Show me without guessing"),
        element("span", {}, "The answer opens below.")));
    }

    askNumber(form) {
      const { unit, between, whole } = this.asked, id = `guess-${this.key}`;
      const field = element("input", {
        type: "text", id, inputmode: between && between[0] >= 0 || !between ? "decimal" : null,
        autocomplete: "off", size: 9, "aria-describedby": `say-${this.key}`, enterkeyhint: "done",
      });
      form.append(
        element("label", { for: id }, "Your guess"),
        element("span", { class: "labkit-field" }, field, element("span", { class: "labkit-unit" }, unit)),
        element("button", { type: "submit" }, "Commit"));
      if (between) {
        const [low, high] = between;
        const slider = element("input", {
          type: "range", min: low, max: high, step: whole && high - low <= 200 ? 1 : (high - low) / 200,
          "aria-label": `Your guess, from ${amount(between[0])} to ${amount(between[1], unit)}`,
        });
        slider.value = (low + high) / 2;
        const value = () => {
          const x = Number(slider.value);
          return whole ? Math.round(x) : Number(x.toPrecision(2));
        };
        slider.addEventListener("input", () => {
          field.value = String(value());
          slider.setAttribute("aria-valuetext", amount(value(), unit));
        });
        field.addEventListener("input", () => {
          const x = read(field.value);
          if (x !== null) slider.value = x;
        });
        form.append(element("span", { class: "labkit-slide" },
          element("span", {}, amount(between[0])), slider, element("span", {}, amount(between[1]))));
      }
      return () => read(field.value);
    }

    askChoice(form) {
      const name = `guess-${this.key}`;
      form.append(element("fieldset", {},
        element("legend", {}, "Your guess"),
        ...this.asked.choices.map(choice => element("label", {},
          element("input", { type: "radio", name, value: choice }), element("span", {}, choice)))),
      element("button", { type: "submit" }, "Commit"));
      return () => form.querySelector("input:checked")?.value ?? null;
    }
  }

  const questions = [];

  function forgetAll() {
    for (const question of questions) { forget(question.key); question.cover(); }
  }
  function showAll() {
    for (const question of questions) if (question.state === "covered") question.open(null);
  }

  /* Under the title: how often the page asks, and a way past all of it. */
  function offerAll() {
    const title = document.querySelector("article h1");
    if (!title || !questions.length) return;
    const times = questions.length === 1 ? "one question" : `${questions.length} questions`;
    (document.querySelector(".labkit-minutes") ?? title).after(element("p", { class: "labkit-quiet" },
      element("span", {}, `This page asks ${times} before it answers.`),
      element("button", { type: "button", onclick: showAll }, "Show all answers"),
      element("button", { type: "button", onclick: forgetAll }, "Cover them again")));
  }

  /* A link into what is covered opens it: the reader has asked for that place. */
  function followHash() {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no such id */ }
    if (!target) return;
    for (const question of questions) {
      if (question.state === "covered" && question.hides(target)) { question.open(null); target.scrollIntoView(); }
    }
  }

  function start() {
    for (const asking of document.querySelectorAll("div.cell .labkit-predict[data-asked]")) {
      try { questions.push(new Question(asking)); } catch (error) { console.error(String(error)); }
    }
    offerAll();
    followHash();
    addEventListener("hashchange", followHash);
  }

  window.labkitPredict = { amount, sentence, read, ends, place, questions, showAll, forgetAll };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
