// What paper shows and should not: buttons, texts too pale for white paper, dark lines between the cells of a table. (Figures have their own check.)
(() => {
  const LEAST = 4.5, found = new Set();
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getClientRects().length;
  for (const button of document.querySelectorAll("button, input[type=range], select, .sd-btn, .copybtn"))
    if (shown(button) && button.getBoundingClientRect().width > 1)
      found.add("a button on paper: " + (button.getAttribute("aria-label") || button.textContent || button.className).trim().slice(0, 50));
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const numbers = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const walker = document.createTreeWalker(document.querySelector("article") || document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, at = text.parentElement;
    if (!text.data.trim() || at.closest("svg, script, style, .headerlink") || !shown(at)) continue;
    let ground = [255, 255, 255];
    for (let e = at; e; e = e.parentElement) {
      const back = numbers(getComputedStyle(e).backgroundColor);
      if (back.length === 3 || back[3] > 0.5) { ground = back; break; }
    }
    const [a, b] = [light(numbers(getComputedStyle(at).color)), light(ground)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < LEAST) found.add(`pale on paper (${contrast.toFixed(1)}): ` + text.data.trim().slice(0, 40));
    if (light(ground) < 0.5) found.add("dark ground on paper: " + text.data.trim().slice(0, 40));
  }
  for (const cell of document.querySelectorAll("article :is(th, td)")) {
    const style = getComputedStyle(cell);
    if (["Left", "Right"].some((side) => parseFloat(style[`border${side}Width`]) > 0 && light(numbers(style[`border${side}Color`])) < 0.4))
      found.add("a dark line beside a cell: " + cell.innerText.trim().slice(0, 30));
  }
  return [...found].slice(0, 20);
})()
