// Questions answered on the page, hover definitions, and small repairs of the theme. No library, no request; works on file://.
(function () {
  "use strict";

  const store = {
    read(key) { try { return JSON.parse(localStorage.getItem(key)); } catch { return null; } },
    write(key, value) { try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* private window: nothing is kept */ } },
  };

  // A question: the reason of the chosen answer appears below the choices and is read aloud once.
  function question(form) {
    const key = "twophase-question-" + form.dataset.question;
    const inputs = [...form.querySelectorAll("input")];
    const answer = form.querySelector(".tp-answer");
    const again = document.createElement("button");
    form.classList.add("tp-live");
    again.type = "button";
    again.className = "tp-again";
    again.textContent = "Clear";
    again.hidden = true;
    form.querySelector("fieldset").append(again);

    function show(quietly) {
      const chosen = inputs.filter((input) => input.checked);
      answer.replaceChildren();
      answer.setAttribute("aria-live", quietly ? "off" : "polite");
      for (const input of inputs) {
        const choice = input.closest(".tp-choice");
        choice.classList.toggle("tp-right", input.checked && choice.dataset.correct === "yes");
        choice.classList.toggle("tp-wrong", input.checked && choice.dataset.correct === "no");
      }
      for (const input of chosen) {
        const reason = input.closest(".tp-choice").querySelector(".tp-reason > div").cloneNode(true);
        reason.className = input.closest(".tp-choice").dataset.correct === "yes" ? "tp-right" : "tp-wrong";
        for (const element of reason.querySelectorAll("[id]")) element.removeAttribute("id");
        answer.append(reason);
      }
      again.hidden = chosen.length === 0;
    }

    const kept = store.read(key);
    if (Array.isArray(kept)) for (const input of inputs) input.checked = kept.includes(input.value);
    show(true);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => {
      store.write(key, inputs.filter((input) => input.checked).map((input) => input.value));
      show(false);
    });
    again.addEventListener("click", () => {
      for (const input of inputs) input.checked = false;
      store.write(key, []);
      show(false);
      inputs[0].focus();
    });
  }

  // On paper every choice has its reason: a folded one would print its heading alone.
  function printing() {
    const reasons = [...document.querySelectorAll("details.tp-reason")];
    let opened = [];
    window.addEventListener("beforeprint", () => {
      opened = reasons.filter((reason) => !reason.open);
      for (const reason of opened) reason.open = true;
    });
    window.addEventListener("afterprint", () => { for (const reason of opened) reason.open = false; });
  }

  // A definition: the link's title, shown on hover and on keyboard focus; Escape closes it.
  function definitions() {
    const box = document.createElement("div");
    box.id = "tp-definition";
    box.setAttribute("role", "tooltip");
    box.hidden = true;
    document.body.append(box);
    let current = null;

    function open(link) {
      current = link;
      box.textContent = link.dataset.definition;
      box.hidden = false;
      link.setAttribute("aria-describedby", box.id);
      const at = link.getBoundingClientRect();
      const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8));
      const above = at.bottom + box.offsetHeight + 12 > window.innerHeight;
      box.style.left = left + window.scrollX + "px";
      box.style.top = (above ? at.top - box.offsetHeight - 6 : at.bottom + 6) + window.scrollY + "px";
    }
    function close() {
      if (current) current.removeAttribute("aria-describedby");
      current = null;
      box.hidden = true;
    }
    for (const link of document.querySelectorAll("a.tp-term[title]")) {
      link.dataset.definition = link.title;
      link.removeAttribute("title");
      link.addEventListener("mouseenter", () => open(link));
      link.addEventListener("focus", () => open(link));
      link.addEventListener("mouseleave", close);
      link.addEventListener("blur", close);
    }
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  }

  // What scrolls sideways can be scrolled with the keyboard, and has a name.
  function scrollers() {
    const name = { "TABLE": "table", "PRE": "code", "math": "formula" };
    const marked = new Map(); // what is a stop by this, and whether by this it has a role
    function mark() {
      for (const box of document.querySelectorAll("article .tp-scroll, article pre, article div.math, article .tp-plot, article .cell_output .output")) {
        const down = !box.matches("div.math") && box.scrollHeight > box.clientHeight + 1; // a tall formula is not cut
        const scrolls = box.scrollWidth > box.clientWidth + 1 || down;
        const canScroll = scrolls && getComputedStyle(box).overflowX !== "visible";
        if (canScroll && !box.hasAttribute("tabindex")) {
          box.tabIndex = 0;
          marked.set(box, !box.hasAttribute("role"));
          if (marked.get(box)) {
            box.setAttribute("role", "group");
            box.setAttribute("aria-label", (name[(box.firstElementChild || box).tagName] || name[box.tagName] || "content") + ", scrolls sideways");
          }
        } else if (!canScroll && marked.has(box)) { // in its own font a formula may fit, and in a wider window
          for (const set of marked.get(box) ? ["tabindex", "role", "aria-label"] : ["tabindex"]) box.removeAttribute(set);
          marked.delete(box);
        }
      }
    }
    mark();
    window.addEventListener("resize", mark);
    document.fonts.ready.then(mark); // formulas have their size only then
    document.fonts.addEventListener("loadingdone", mark); // `ready` may come before the first font is asked for
  }

  // The contents at the right say where a sitting begins.
  function sittings() {
    const sections = [...document.querySelectorAll("article section[id]")];
    for (const [number, sitting] of document.querySelectorAll("article .tp-sitting").entries()) {
      const next = sections.find((section) => sitting.compareDocumentPosition(section) & Node.DOCUMENT_POSITION_FOLLOWING);
      const line = next && document.querySelector(`.bd-sidebar-secondary nav a[href="#${CSS.escape(next.id)}"]`)?.closest("li");
      if (!line) continue;
      sitting.id ||= "sitting-" + (number + 2);
      const entry = document.createElement("li"), link = document.createElement("a");
      entry.className = "tp-toc-sitting";
      link.href = "#" + sitting.id;
      link.textContent = sitting.querySelector("p").textContent.split(".")[0];
      entry.append(link);
      line.before(entry);
    }
  }

  function repairs() {
    const sidebar = document.querySelector(".bd-sidebar-primary");
    if (sidebar && !sidebar.hasAttribute("role")) {
      sidebar.setAttribute("role", "region");
      sidebar.setAttribute("aria-label", "Book");
    }
    for (const button of document.querySelectorAll(".search-button-field[aria-label]")) button.removeAttribute("aria-label");
    // The toggle's own text is its name; the theme adds another.
    for (const summary of document.querySelectorAll("details.hide > summary[aria-label]")) summary.removeAttribute("aria-label");
    for (const icon of document.querySelectorAll(".theme-switch-button [title]")) icon.removeAttribute("title"); // the button has a name
    for (const summary of document.querySelectorAll(".bd-sidebar-primary nav summary")) {
      const link = summary.closest("li").querySelector("a");
      summary.setAttribute("aria-label", "Pages of " + (link ? link.textContent.trim() : "this section"));
    }
    for (const element of document.querySelectorAll('[role="doc-biblioentry"], [role="doc-endnote"]')) element.removeAttribute("role");
    for (const element of document.querySelectorAll('div.citation-list[role="list"], dl[role="list"]')) element.removeAttribute("role");
  }

  function start() {
    document.querySelectorAll("form.tp-question").forEach(question);
    printing();
    definitions();
    repairs();
    sittings();
    scrollers();
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
