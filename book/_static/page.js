/* What the theme leaves undone for those who use a keyboard or listen to the page. */
(() => {
  "use strict";

  /* A box that scrolls sideways can be reached and scrolled by keyboard, and says what it is. */
  const BOXES = {
    "div.math": "formula, scrolls sideways",
    ".pst-scrollable-table-container": "table, scrolls sideways",
    ".cell_output .text_html": "output, scrolls sideways",
    "pre": "code or output, scrolls sideways",
  };
  function reachable() {
    for (const [selector, name] of Object.entries(BOXES)) {
      for (const box of document.querySelectorAll(`.bd-article ${selector}`)) {
        const scrolls = box.scrollWidth > box.clientWidth + 1;
        if (scrolls) {
          box.tabIndex = 0;
          box.setAttribute("role", "region");
          box.setAttribute("aria-label", name);
        } else if (box.getAttribute("aria-label") === name) {
          for (const attribute of ["tabindex", "role", "aria-label"]) box.removeAttribute(attribute);
        }
      }
    }
  }

  function mend() {
    for (const arrow of document.querySelectorAll("nav details > summary:not([aria-label])")) {
      const page = arrow.closest("li")?.querySelector("a")?.textContent.trim() ?? "this part";
      arrow.setAttribute("aria-label", `Pages of ${page}`);
    }
    /* The bibliography calls itself a list, and has no list items. */
    for (const list of document.querySelectorAll('.citation-list[role="list"]')) list.removeAttribute("role");
    const typeset = window.MathJax?.startup?.promise ?? Promise.resolve();
    typeset.then(() => {
      reachable();
      let waiting = 0;
      addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(reachable, 150); });
    });
  }

  addEventListener("load", mend);
})();
