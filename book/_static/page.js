/* What the theme leaves undone for those who use a keyboard or listen to the page. */
(() => {
  "use strict";

  /* A box that scrolls sideways can be reached and scrolled by keyboard, and says what it is. */
  const BOXES = {
    "div.math": "formula, scrolls sideways",
    "span.math": "formula, scrolls sideways",
    ".pst-scrollable-table-container": "table, scrolls sideways",
    ".cell_output .text_html": "output, scrolls sideways",
    ".cell_output:has(> img)": "figure, scrolls sideways",
    "pre": "code or output, scrolls sideways",
  };
  const boxes = () => document.querySelectorAll(Object.keys(BOXES).map((selector) => `.bd-article ${selector}`).join());
  function reachable(changed) {
    // a formula that fits its line may hang over by a slanted letter, and does not scroll
    const scrolling = (box) => !box.matches("span.math:not(.labkit-wide)") && box.scrollWidth > box.clientWidth + 1;
    const seen = changed.map(({ target }) => [target, scrolling(target)]);
    for (const [box, scrolls] of seen) {
      const name = Object.entries(BOXES).find(([selector]) => box.matches(selector))[1];
      if (scrolls) {
        box.tabIndex = 0;
        box.setAttribute("role", "group"); /* a region would be a landmark, and there are dozens of the same name */
        box.setAttribute("aria-label", name);
      } else if (box.getAttribute("aria-label") === name) {
        for (const attribute of ["tabindex", "role", "aria-label"]) box.removeAttribute(attribute);
      }
    }
  }

  /* A formula in a line of text, wider than the text: it gets a line of its own, which scrolls. */
  function giveRoom() {
    const seen = [...document.querySelectorAll(".bd-article span.math")].map((formula) => {
      const room = formula.parentElement.closest("p, li, dd, td, th, h1, h2, h3, h4, div").clientWidth;
      return [formula, room > 0 && formula.firstElementChild?.getBoundingClientRect().width > room];
    });
    for (const [formula, wide] of seen) formula.classList.toggle("labkit-wide", wide);
    reachable(seen.map(([formula]) => ({ target: formula })));
  }

  /* From a file the browser may fetch no page: what the search finds then stands there without its excerpt. */
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  /* A search that led elsewhere has left its words behind; where none of them stands, there is nothing to hide. */
  function nothingToHide() {
    if (!document.querySelector("span.highlighted")) document.querySelector(".highlight-link")?.remove();
  }

  function mend() {
    setTimeout(nothingToHide, 100); /* Sphinx marks them after 10 ms */
    for (const arrow of document.querySelectorAll("nav details > summary:not([aria-label])")) {
      const page = arrow.closest("li")?.querySelector("a")?.textContent.trim() ?? "this part";
      arrow.setAttribute("aria-label", `Pages of ${page}`);
    }
    /* The book's name stands above the sidebar's own landmarks. */
    const cover = document.querySelector(".bd-sidebar-primary .navbar-brand")?.parentElement;
    cover?.setAttribute("role", "navigation");
    cover?.setAttribute("aria-label", "Cover");
    /* The bibliography calls itself a list, and has no list items. */
    for (const list of document.querySelectorAll('.citation-list[role="list"]')) list.removeAttribute("role");
    const typeset = window.MathJax?.startup?.promise ?? Promise.resolve();
    typeset.then(() => {
      const watch = new ResizeObserver(reachable); /* narrower, wider, or shown for the first time */
      for (const box of boxes()) watch.observe(box);
      let width = -1;
      new ResizeObserver(([{ contentRect }]) => {
        if (contentRect.width !== width) requestAnimationFrame(giveRoom);
        width = contentRect.width;
      }).observe(document.querySelector(".bd-article") ?? document.body);
    });
  }

  addEventListener("load", mend);
})();
