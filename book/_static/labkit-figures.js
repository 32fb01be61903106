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
      figure.render({ model, el: live });
      still.forEach((node) => node.remove());
      box.dataset.live = "";
    } catch (error) {
      box.replaceChildren(...still);
      console.warn(`labkit: the figure "${box.dataset.figure}" stays still:`, error);
    }
  }

  const all = () => document.querySelectorAll(".labkit-figure[data-figure]").forEach(mount);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
