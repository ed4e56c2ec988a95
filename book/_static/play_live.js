// {play} boxes in a page: controls change the state, and what play.js says of it is shown.
(function () {
  "use strict";
  const play = window.twophasePlay;

  function live({ box, spec, formulas }) {
    const section = document.getElementById(box), find = (css) => section.querySelector(css);
    const svg = find(".tp-plot svg"), rows = find(".tp-rows svg"), room = find(".tp-room"), quiet = find(".tp-quiet"), dot = find(".tp-dot");
    const state = play.start(spec), width = () => Math.max(280, Math.round(svg.parentElement.clientWidth) || 640);

    function show() {
      const now = play.shown(spec, formulas, state, svg ? width() : undefined);
      for (const [name, text] of Object.entries(now.outputs)) find(`[data-output="${name}"]`).textContent = text;
      section.classList.toggle("tp-full", !now.fits);
      if (room) room.textContent = now.room;
      if (rows) rows.innerHTML = now.rows;
      if (!svg) return;
      svg.setAttribute("viewBox", `0 0 ${width()} ${now.height}`);
      svg.innerHTML = now.drawing;
      svg.setAttribute("aria-label", now.words);
      if (dot) {
        const [x, y] = play.dotAt(spec, formulas, state, width());
        Object.assign(dot.style, { left: `${x}px`, top: `${y}px` });
      }
    }
    // Read aloud once the hand or the keys rest.
    let waiting = null;
    function tell() {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        const said = [...section.querySelectorAll("[data-output]")].map((cell) => `${cell.previousElementSibling.textContent} ${cell.textContent}`);
        quiet.textContent = [room ? room.textContent : "", ...said].filter(Boolean).join(", ");
      }, 700);
    }
    function set(item, value) {
      state[item.name] = value;
      const text = play.readable(value, item.unit);
      for (const control of section.querySelectorAll(`[data-input="${item.name}"]`)) {
        control.setAttribute("aria-valuetext", text);
        if (control === dot) dot.setAttribute("aria-valuenow", value);
        else {
          control.value = play.positionOf(item, value);
          control.nextElementSibling.textContent = text;
        }
      }
      show();
      tell();
    }
    for (const control of section.querySelectorAll("[data-input]")) {
      const item = play.inputOf(spec, control.dataset.input);
      if (control.tagName === "SELECT") {
        control.addEventListener("input", () => {
          Object.assign(state, item.options[control.value]);
          control.nextElementSibling.textContent = control.value; // what paper shows
          show();
          tell();
        });
        continue;
      }
      control.addEventListener("keydown", (event) => {
        const value = event.altKey || event.ctrlKey || event.metaKey ? undefined : play.keyed(item, state[item.name], event.key);
        if (value === undefined) return;
        event.preventDefault();
        set(item, value);
      });
      if (control !== dot) control.addEventListener("input", () => set(item, play.valueOf(item, Number(control.value))));
    }
    if (dot) {
      const drag = (event) => {
        const pixel = event.clientX - svg.getBoundingClientRect().left;
        set(play.inputOf(spec, spec.plot.dot.drag), play.draggedTo(spec, formulas, state, play.axisAt(spec, formulas, state, pixel, width())));
      };
      dot.addEventListener("pointerdown", (event) => { dot.setPointerCapture(event.pointerId); dot.focus(); event.preventDefault(); });
      dot.addEventListener("pointermove", (event) => { if (dot.hasPointerCapture(event.pointerId)) drag(event); });
      svg.addEventListener("click", drag);
    }
    section.classList.add("tp-live");
    show();
    if (svg && "ResizeObserver" in window) new ResizeObserver(show).observe(svg.parentElement);
  }

  for (const box of window.twophasePlays || []) live(box);
})();
