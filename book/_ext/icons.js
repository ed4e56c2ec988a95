// Puts drawings where the theme names icons. book_icons.py writes the book's own icons into it, and it in place of the theme's script.
(() => {
  const ICONS = ICONS_OF_THE_BOOK, NS = "http://www.w3.org/2000/svg", style = document.createElement("style");
  style.textContent = `.svg-inline--fa { display: inline-block; height: 1em; overflow: visible; box-sizing: content-box; vertical-align: -.125em; }
    .fa-lg { font-size: 1.25em; line-height: .05em; } .svg-inline--fa.fa-lg { vertical-align: -.2em; }`;
  document.head.prepend(style); // whatever the theme says of an icon goes before
  function put(mark) {
    const name = Object.keys(ICONS).find((classes) => classes.split(" ").every((c) => mark.classList.contains(c)));
    if (!name) return;
    const [wide, high, path] = ICONS[name], svg = document.createElementNS(NS, "svg"), drawn = document.createElementNS(NS, "path");
    for (const { name: key, value } of mark.attributes) svg.setAttribute(key, value);
    svg.setAttribute("class", "svg-inline--fa " + mark.className);
    svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    svg.setAttribute("aria-hidden", "true");
    drawn.setAttribute("fill", "currentColor");
    drawn.setAttribute("d", path);
    svg.append(drawn);
    mark.replaceWith(svg);
  }
  const all = (inside) => inside.querySelectorAll("i[class*='fa-'], span[class*='fa-']").forEach(put);
  all(document);
  new MutationObserver((changes) => changes.forEach((change) => all(change.target))).observe(document.body, { childList: true, subtree: true });
})();
