// Mechanisms: one frame at a time, with buttons, a slider and keys. Without this script all frames stand on the page.
(function () {
  "use strict";
  const PAUSE_MS = 1600;

  function button(text, label, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }

  function live(section) {
    const frames = [...section.querySelectorAll(":scope > ol > li")], last = frames.length - 1;
    const status = document.createElement("p"), bar = document.createElement("div"), slider = document.createElement("input");
    let at = 0, timer = null;

    // By hand a step is read aloud; while it plays it is not.
    function show(index, aloud) {
      at = Math.max(0, Math.min(last, index));
      frames.forEach((frame, i) => frame.classList.toggle("tp-shown", i === at));
      slider.value = at;
      slider.setAttribute("aria-valuetext", `Step ${at + 1} of ${last + 1}`);
      back.setAttribute("aria-disabled", at === 0); // `disabled` would take the focus away
      on.setAttribute("aria-disabled", at === last);
      if (aloud) status.textContent = frames[at].querySelector(".tp-says").textContent;
    }
    function pause() {
      clearInterval(timer);
      timer = null;
      run.textContent = "Play";
      run.setAttribute("aria-label", "Play all steps");
    }
    function step(index) { pause(); show(index, true); }
    function play() {
      if (timer) return pause();
      show(at === last ? 0 : at + 1, false);
      run.textContent = "Pause";
      run.setAttribute("aria-label", "Pause");
      timer = setInterval(() => { if (at === last) pause(); else show(at + 1, false); }, PAUSE_MS);
    }

    const back = button("\u2190", "One step back", () => step(at - 1)), on = button("\u2192", "One step on", () => step(at + 1));
    const run = button("Play", "Play all steps", play);
    run.className = "tp-run";
    slider.type = "range";
    slider.min = 0;
    slider.max = last;
    slider.step = 1;
    slider.setAttribute("aria-label", "Step");
    slider.addEventListener("input", () => step(Number(slider.value)));
    bar.className = "tp-buttons";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Steps");
    bar.append(back, on, run, slider);
    // On the buttons the arrows, Home and End do what they do on the slider.
    bar.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
      if (to === undefined || event.target === slider || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      step(to);
    });
    status.className = "tp-quiet";
    status.setAttribute("role", "status");
    section.querySelector(":scope > ol").before(bar);
    section.append(status);
    section.classList.add("tp-live");
    show(0, false);
  }

  function start() { document.querySelectorAll("section.tp-mechanism:not(.tp-clicked)").forEach(live); }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
