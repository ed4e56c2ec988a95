document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("form.tp-filter");
  if (!form) return;
  const rows = [...document.querySelectorAll("ul.tp-ledger > li > details")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const selects = ["verdict", "severity", "topic", "source"];
  function apply() {
    const words = form.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = selects.every((name) => !form[name].value || row.dataset[name] === form[name].value)
        && words.every((word) => texts[i].includes(word));
      row.parentElement.hidden = !fits;
      shown += fits;
    });
    for (const list of document.querySelectorAll("ul.tp-ledger")) // a source without a row left: its whole section
      (list.closest("section") ?? list).hidden = !list.querySelector("li:not([hidden])");
    form.querySelector("output").textContent = `${shown} of ${rows.length} claims`;
  }
  function remember() { // the address says what is shown, so that it can be sent to somebody
    const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", asked.size ? `#${asked}` : location.pathname + location.search);
  }
  function arrive() {
    const hash = location.hash.slice(1);
    const row = document.getElementById(hash);
    if (rows.includes(row)) {
      if (row.parentElement.hidden) { form.reset(); apply(); }
      row.open = true;
      row.scrollIntoView();
    } else if (hash.includes("=")) {
      form.reset();
      for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
        if (name === "words" || selects.includes(name)) form[name].value = value;
      apply();
      form.scrollIntoView();
    } else {
      const place = document.getElementById(hash); // a source's list, hidden by the filter
      if (place?.closest("[hidden]")) { form.reset(); apply(); place.scrollIntoView(); }
    }
  }
  form.classList.add("tp-live");
  form.addEventListener("input", () => { apply(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", arrive);
  let closed = []; // on paper every row that is shown stands open
  window.addEventListener("beforeprint", () => {
    closed = rows.filter((row) => !row.open && !row.parentElement.hidden);
    for (const row of closed) row.open = true;
  });
  window.addEventListener("afterprint", () => { for (const row of closed) row.open = false; });
  apply();
  arrive();
});
