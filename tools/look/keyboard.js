// What has the focus now, whether it had it before, and what is wrong with that; null if nothing has it.
(() => {
  const at = document.activeElement;
  if (!at || at === document.body || at === document.documentElement) return null;
  // The arrow of a folded part of the contents has no box of its own; its mark has.
  const seen = at.matches("summary") && !at.offsetHeight ? at.firstElementChild || at : at;
  const style = getComputedStyle(seen), boxes = [...seen.getClientRects()].filter((b) => b.width && b.height);
  const name = (at.tagName.toLowerCase() + " " + (at.getAttribute("aria-label") || at.innerText || at.className || ""))
    .replace(/\s+/g, " ").slice(0, 60), found = [], box = boxes[0];
  const again = at.tpWalked;
  at.tpWalked = true;
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) found.push("has the focus, and nothing shows it");
  if (!box) found.push("has the focus, and cannot be seen");
  else if (box.bottom <= 0 || box.top >= innerHeight || box.right <= 0 || box.left >= innerWidth)
    found.push("has the focus outside of the window");
  else {
    const x = Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 2), y = Math.min(Math.max(box.top + box.height / 2, 1), innerHeight - 2);
    const hit = document.elementFromPoint(x, y);
    if (hit && !at.contains(hit) && !hit.contains(seen)) found.push("has the focus under " + hit.tagName.toLowerCase() + "." + hit.className);
  }
  if (at.closest("div.math") && at.scrollWidth <= at.clientWidth + 1 && at.scrollHeight <= at.clientHeight + 1 && at.tagName !== "A")
    found.push("is a formula that does not scroll, and a stop");
  return { name, again: Boolean(again), found };
})()
