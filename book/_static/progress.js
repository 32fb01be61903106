/* Where a reader was, and how far: kept in their own browser, told nobody.

   A page of the labs or sets notes that it is open, and how many of its questions have been answered. The cover offers the
   way back, says beside each lab how far one came, and forgets all of it when asked to. */
(() => {
  "use strict";

  const KEY = "labkit-progress";
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href).href;
  const here = location.href.slice(root.length).split(/[?#]/)[0];

  function known() {
    try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; }
  }
  function note(change) {
    try { localStorage.setItem(KEY, JSON.stringify({ ...known(), ...change })); } catch { /* nothing may be stored */ }
  }
  function forget() {
    try { localStorage.removeItem(KEY); } catch { /* nothing was stored */ }
    document.querySelectorAll(".labkit-progress").forEach((e) => e.remove());
  }
  function element(tag, text, properties = {}) {
    const made = Object.assign(document.createElement(tag), properties);
    made.textContent = text;
    return made;
  }

  function onLab() {
    const title = document.querySelector("article h1")?.firstChild?.textContent ?? "";
    const count = () => {
      const all = globalThis.labkitPredict?.questions ?? [];
      const pages = known().pages ?? {};
      note({ last: [here, title], pages: { ...pages, [here]: [all.filter((q) => q.state !== "covered").length, all.length] } });
    };
    count();
    addEventListener("pagehide", count);
  }

  function onCover() {
    const { last, pages = {} } = known();
    const lead = document.querySelector("article h1 + p");
    if (!Array.isArray(last) || !lead) return;
    const line = element("p", "", { className: "labkit-quiet labkit-progress" });
    const way = element("span", "Continue where you were: ");
    way.append(element("a", last[1], { href: root + last[0] }));
    line.append(way, element("button", "Forget", { type: "button", onclick: forget }));
    lead.after(line);
    for (const link of document.querySelectorAll("article td a[href*='notebooks/']")) {
      const [answered, all] = pages[link.href.slice(root.length)] ?? [0, 0];
      if (answered) link.after(element("span", ` ${answered} of ${all}`, { className: "labkit-progress", title: "questions answered" }));
    }
  }

  addEventListener("load", () => {
    if (here.startsWith("notebooks/")) onLab();
    else if (here === "book/index.html") onCover();
  });
})();
