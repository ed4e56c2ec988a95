// What is wrong inside of the figures that a selector finds, one line each: texts below 11 pixels, contrast below 4.5, texts that overlap, data that runs through a text.
// Of a mechanism all frames are looked at, shown or not.
(where) => {
  const SMALLEST = matchMedia("print").matches ? 9.3 : 10.95, LEAST = 4.5, found = []; // on paper 7 points
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x); return (high + 0.05) / (low + 0.05); };
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
  const shapes = (svg) => [...svg.querySelectorAll("path, rect, circle, polygon, line, polyline")].filter((shape) => !shape.closest("defs, pattern, clipPath") && shown(shape));
  const at = (shape, x, y) => new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());

  // Whether a shape is cut off there: matplotlib cuts by rectangles in the units of the whole.
  function clipped(shape, x, y) {
    const url = shape.closest("[clip-path]")?.getAttribute("clip-path").match(/#([^)]+)/), rect = url && document.getElementById(url[1])?.firstElementChild;
    if (!rect || rect.tagName !== "rect") return false;
    const [left, top, width, height] = ["x", "y", "width", "height"].map((name) => Number(rect.getAttribute(name))), point = at(shape.ownerSVGElement, x, y);
    return point.x < left || point.x > left + width || point.y < top || point.y > top + height;
  }
  const points = (box) => Array.from({ length: 125 }, (_, i) => [box.x + ((i % 25) + 0.5) / 25 * box.width, box.y + (Math.floor(i / 25) + 0.5) / 5 * box.height]);

  function page(element) {
    for (let up = element; up; up = up.parentElement) {
      const back = channels(getComputedStyle(up).backgroundColor);
      if (back[3] > 0) return back;
    }
    return [255, 255, 255, 255];
  }
  // What lies under the middle of a text: the last shape painted there before it, else the page.
  function under(text, box, all) {
    let back = page(text);
    for (const shape of all) {
      const style = getComputedStyle(shape);
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING) || style.fill === "none" || style.fill.startsWith("url") || style.fillOpacity < 0.5 || style.opacity < 0.5) continue;
      const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
      if (!clipped(shape, x, y) && shape.isPointInFill(at(shape, x, y))) back = channels(style.fill);
    }
    return back;
  }

  const frames = [...document.querySelectorAll(".tp-mechanism li:not(.tp-shown)")];
  frames.forEach((frame) => frame.classList.add("tp-shown"));
  for (const svg of document.querySelectorAll(where)) {
    if (!shown(svg) || !svg.querySelector("text")) continue;
    const of = svg.closest("[id]")?.id ?? "", all = shapes(svg), line = String(channels(getComputedStyle(svg).getPropertyValue("--tp-line")));
    const data = all.filter((shape) => { const style = getComputedStyle(shape); return style.stroke !== "none" && parseFloat(style.strokeWidth) >= 1.1 && String(channels(style.stroke)) !== line && shape.tagName === "path" && style.fill === "none"; });
    const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim() && shown(text)).map((text) => {
      const { x, y, width, height } = text.getBoundingClientRect(), matrix = text.getScreenCTM();
      return { text, says: text.textContent.trim().replace(/\s+/g, " ").slice(0, 40), upright: Math.abs(matrix.b) < 1e-3, box: { x, width, y: y + height * 0.18, height: height * 0.64 } };
    });
    const room = svg.closest(".tp-drawing, .tp-mechanism, .tp-figure, .tp-plot");
    if (room && svg.getBoundingClientRect().right > room.getBoundingClientRect().right + 1) found.push(`${of}: a drawing leaves its box`);
    for (const { text, says, box, upright } of texts) {
      if (room && (box.x + box.width > room.getBoundingClientRect().right + 1 || box.x < room.getBoundingClientRect().left - 1)) found.push(`${of}: “${says}” leaves its box`);
      const matrix = text.getScreenCTM(), scale = Math.sqrt(Math.abs(matrix.a * matrix.d - matrix.b * matrix.c));
      for (const leaf of text.querySelector("tspan") ? text.querySelectorAll("tspan") : [text]) {
        const size = parseFloat(getComputedStyle(leaf).fontSize) * scale;
        if (leaf.textContent.trim() && size < SMALLEST) found.push(`${of}: “${says}” is ${size.toFixed(1)} px high`);
      }
      const style = getComputedStyle(text.querySelector("tspan") ?? text), ratio = contrast(channels(style.fill), under(text, box, all));
      if (ratio < LEAST) found.push(`${of}: “${says}” has a contrast of ${ratio.toFixed(2)}`);
      const halo = style.stroke !== "none", patterned = svg.closest(".tp-drawing, .tp-mechanism"); // whose patterns are paler than their texts
      if (upright && !halo && !patterned && data.some((shape) => points(box).some(([x, y]) => !clipped(shape, x, y) && shape.isPointInStroke(at(shape, x, y))))) found.push(`${of}: a line runs through “${says}”`);
    }
    texts.forEach((one, i) => texts.slice(i + 1).forEach((two) => {
      const across = Math.min(one.box.x + one.box.width, two.box.x + two.box.width) - Math.max(one.box.x, two.box.x);
      const down = Math.min(one.box.y + one.box.height, two.box.y + two.box.height) - Math.max(one.box.y, two.box.y);
      if (across > 1 && down > 1) found.push(`${of}: “${one.says}” and “${two.says}” overlap`);
    }));
  }
  frames.forEach((frame) => frame.classList.remove("tp-shown"));
  return found;
}
