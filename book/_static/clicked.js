// Drawings that the reader leads: a button for each deed, and the moment that follows it, looked up among those the page's own code computed.
// Without this script the frames of one story stand on the page.
(function () {
  "use strict";

  function button(text, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => { if (made.getAttribute("aria-disabled") !== "true") act(); });
    return made;
  }
  function group(label) {
    const made = document.createElement("div");
    made.className = "tp-buttons";
    made.setAttribute("role", "group");
    made.setAttribute("aria-label", label);
    return made;
  }

  function live(section) {
    const data = JSON.parse(section.querySelector(":scope > script").textContent);
    const stage = document.createElement("div"), says = document.createElement("p"), status = document.createElement("p");
    const deeds = [], been = [];
    let at = 0;

    function draw() {
      for (const [name, layout] of Object.entries(data.layouts)) {
        const picture = stage.querySelector(`svg.${name}`);
        picture.setAttribute("aria-label", `${data.alt} ${data.words[data.says[at]]}`);
        picture.querySelector(".tp-cells").innerHTML = layout.places.map(([x, y], i) => {
          const [state, text] = data.faces[data.letters.indexOf(data.cells[at][i])];
          return `<g transform="translate(${x} ${y})">${layout.looks[state].replace("@", () => text)}</g>`;
        }).join("");
      }
      // `disabled` would take the focus away
      deeds.forEach((made, i) => made.setAttribute("aria-disabled", !(data.then[at][i] >= 0)));
      back.setAttribute("aria-disabled", !been.length);
      again.setAttribute("aria-disabled", !been.length);
      says.textContent = data.words[data.says[at]] + (data.then[at].length ? "" : " Here the drawing ends: go back, or start again.");
    }
    function go(to) {
      at = to;
      draw();
      status.textContent = says.textContent; // read aloud
    }

    for (const row of data.deeds) {
      const bar = group("What happens next");
      for (const deed of row) {
        const place = deeds.length;
        deeds.push(button(deed, () => { been.push(at); go(data.then[at][place]); }));
        bar.append(deeds[place]);
      }
      stage.append(bar);
    }
    const back = button("Undo", () => go(been.pop())), again = button("Start again", () => { been.length = 0; go(0); });
    const bar = group("Steps");
    bar.append(back, again);
    says.className = "tp-says";
    status.className = "tp-quiet";
    status.setAttribute("role", "status");
    stage.className = "tp-stage";
    stage.append(bar, says, status);
    says.insertAdjacentHTML("afterend", data.still);
    section.querySelector(":scope > ol").before(stage);
    section.classList.add("tp-live");
    draw();
  }

  function start() { document.querySelectorAll("section.tp-clicked").forEach(live); }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
