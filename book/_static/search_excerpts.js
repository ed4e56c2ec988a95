// Below each result of a search: the passage that has the words, from search_texts.js. No request; works on file://.
(function () {
  "use strict";
  const LENGTH = 240; // characters of an excerpt

  // The form in which a word stands in a lowercase text, or what it begins with ("caches": "cache"); "" if in none.
  function found(word, text) {
    for (let length = word.length; length >= Math.min(word.length, Math.max(3, word.length - 3)); length--)
      if (text.includes(word.slice(0, length))) return word.slice(0, length);
    return "";
  }

  // Of sections [id, title, text] the place where most of the words stand together; the first of several.
  function best(sections, words) {
    let chosen = null;
    for (const [id, title, text] of sections) {
      const lower = text.toLowerCase();
      const forms = words.map((word) => found(word, lower)).filter(Boolean);
      for (const form of forms)
        for (let at = lower.indexOf(form); at >= 0; at = lower.indexOf(form, at + 1)) {
          const near = lower.slice(at, at + LENGTH / 2);
          const count = forms.filter((other) => near.includes(other)).length;
          if (!chosen || count > chosen.count) chosen = { id, title, text, at, count, forms };
        }
    }
    return chosen;
  }

  function marked(text, words) {
    const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const piece = document.createDocumentFragment();
    text.split(new RegExp("(" + escaped.join("|") + ")", "i")).forEach((part, i) => {
      if (i % 2 === 0) return piece.append(part);
      const mark = document.createElement("mark");
      mark.textContent = part;
      piece.append(mark);
    });
    return piece;
  }

  function excerpt({ text, at, forms }) {
    const start = at > LENGTH / 3 ? text.indexOf(" ", at - LENGTH / 3) + 1 : 0;
    const end = start + LENGTH < text.length ? text.lastIndexOf(" ", start + LENGTH) : text.length;
    const line = document.createElement("p");
    line.className = "tp-excerpt";
    line.append(start ? "\u2026 " : "", marked(text.slice(start, end), forms), end < text.length ? " \u2026" : "");
    return line;
  }

  function show(item, words) {
    const link = item.querySelector("a");
    const [page, id] = (link.getAttribute("href") || "").split("#");
    const sections = window.twophaseTexts[page.split("?")[0].replace(/\.html$/, "")] || [];
    const chosen = best(id ? sections.filter((section) => section[0] === id) : sections, words);
    if (!chosen) return;
    const line = excerpt(chosen);
    if (!id && chosen.id !== sections[0][0]) { // the page was found: say where in it
      const there = document.createElement("a");
      there.href = page + "#" + chosen.id;
      there.textContent = chosen.title;
      line.prepend("In ", there, ": ");
    }
    item.append(line);
  }

  const results = document.getElementById("search-results");
  const query = new URLSearchParams(window.location.search).get("q") || "";
  const words = query.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
  if (!results || !words.length || !window.twophaseTexts) return;
  function all() {
    for (const item of results.querySelectorAll("ul.search > li:not([data-seen])")) {
      item.dataset.seen = "yes";
      show(item, words);
    }
  }
  new MutationObserver(all).observe(results, { childList: true, subtree: true });
  all();
})();
