// Brings interactive figures to life on a page of the book, with no kernel. A notebook's output carries
// <div class="labkit-figure" data-figure="ring" data-state="{...}"> around a still picture; a figure's script is loaded only
// where it is needed, from beside this file. If anything fails, the still picture stays.
(() => {
  "use strict";
  const here = document.currentScript.src;
  const scripts = {};

  const load = (name) =>
    (scripts[name] ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL(`figures/${name}.js${new URL(here).search}`, here).href; // the same ?v=... as this file
      script.onload = () => resolve(globalThis.labkitFigures[name]);
      script.onerror = () => reject(new Error(`no script for the figure ${name}`));
      document.head.append(script);
    }));

  async function mount(box) {
    const still = [...box.childNodes];
    try {
      const figure = await load(box.dataset.figure);
      const live = document.createElement("div");
      box.append(live);
      const model = figure.pageModel(JSON.parse(box.dataset.state));
      if (box.dataset.figure === "sketch") predictFirst(box, model);
      figure.render({ model, el: live });
      still.forEach((node) => node.remove());
      box.dataset.live = "";
    } catch (error) {
      box.replaceChildren(...still);
      console.warn(`labkit: the figure "${box.dataset.figure}" stays still:`, error);
    }
  }

  // A prediction to be drawn: what follows it in its section, up to the next question, stays covered until the answer is shown (or
  // a link leads there). The drawing stays in the reader's own browser.
  function predictFirst(box, model) {
    const key = `labkit-sketch ${location.pathname} ${model.get("asked").question}`;
    try {
      const kept = JSON.parse(localStorage.getItem(key)) ?? {};
      if (kept.drawn?.length === model.get("drawn").length) for (const name of ["drawn", "shown"]) model.set(name, kept[name]);
    } catch { /* denied, or not ours */ }
    const covered = [];
    for (let e = box.closest("div.cell")?.nextElementSibling; e; e = e.nextElementSibling) {
      if (e.matches(".admonition.predict") || e.querySelector(".admonition.predict")) break;
      covered.push(e);
    }
    const linked = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const follow = () => {
      const open = model.get("shown") || covered.some((e) => e.contains(linked()));
      for (const e of covered) {
        e.classList.toggle("labkit-covered", !open);
        if (open) e.querySelectorAll(".tag_hide-output details.hide, details.hide.below-input").forEach((fold) => (fold.open = true));
      }
    };
    const keep = () => {
      try {
        localStorage.setItem(key, JSON.stringify({ drawn: model.get("drawn"), shown: model.get("shown") }));
      } catch { /* denied or full */ }
    };
    model.on("change:shown", follow);
    for (const name of ["drawn", "shown"]) model.on(`change:${name}`, keep);
    addEventListener("hashchange", follow);
    follow();
  }

  const all = () => document.querySelectorAll(".labkit-figure[data-figure]").forEach(mount);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
