// Below each result of a search: the passage that has the words, from search_texts.js. No request; works on file://.
(function () {
  "use strict";
  const LENGTH = 240; // characters of an excerpt

  // Where a word, or what it begins with ("caches": "cache"), first stands in a lowercase text; null if nowhere.
  function find(word, text) {
    const least = Math.max(3, word.length - 3);
    for (let length = word.length; length >= Math.min(least, word.length); length--) {
      const at = text.indexOf(word.slice(0, length));
      if (at >= 0) return { at, length };
    }
    return null;
  }

  // Of sections [id, title, text] the one with most of the words.
  function best(sections, words) {
    let chosen = null;
    for (const [id, title, text] of sections) {
      const lower = text.toLowerCase();
      const hits = words.map((word) => find(word, lower)).filter(Boolean);
      if (hits.length && (!chosen || hits.length > chosen.hits.length)) chosen = { id, title, text, hits };
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

  function excerpt({ text, hits }, words) {
    const from = Math.max(0, Math.min(...hits.map((hit) => hit.at)) - LENGTH / 3);
    const start = from ? text.indexOf(" ", from) + 1 : 0;
    let end = start + LENGTH;
    end = end < text.length ? text.lastIndexOf(" ", end) : text.length;
    const found = hits.map((hit) => text.slice(hit.at, hit.at + hit.length));
    const line = document.createElement("p");
    line.className = "tp-excerpt";
    line.append(start ? "… " : "", marked(text.slice(start, end), [...new Set([...words, ...found])]), end < text.length ? " …" : "");
    return line;
  }

  function show(item, words) {
    const link = item.querySelector("a");
    const [page, id] = (link.getAttribute("href") || "").split("#");
    const sections = window.twophaseTexts[page.split("?")[0].replace(/\.html$/, "")] || [];
    const chosen = best(id ? sections.filter((section) => section[0] === id) : sections, words);
    if (!chosen) return;
    const line = excerpt(chosen, words);
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
