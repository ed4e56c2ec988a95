document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("form.tp-filter");
  if (!form) return;
  const rows = [...document.querySelectorAll("table.tp-ledger tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const roles = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell", th: "columnheader" };
  for (const table of document.querySelectorAll("table.tp-ledger")) {
    table.setAttribute("role", "table"); // a table laid out as cards is still a table
    for (const part of table.querySelectorAll("thead, tbody, tr, td, th")) part.setAttribute("role", roles[part.localName]);
  }
  function apply() {
    const words = form.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = (!form.verdict.value || row.dataset.verdict === form.verdict.value)
        && (!form.topic.value || row.dataset.topic === form.topic.value)
        && words.every((word) => texts[i].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    for (const table of document.querySelectorAll("table.tp-ledger")) // a source without a row left: its whole section
      (table.closest("section") ?? table).hidden = !table.querySelector("tbody tr:not([hidden])");
    form.querySelector("output").textContent = `${shown} of ${rows.length} claims`;
  }
  function arrive() {
    const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!row || !rows.includes(row)) return;
    if (row.hidden) { form.reset(); apply(); }
    row.querySelector("details").open = true;
    row.scrollIntoView();
  }
  form.classList.add("tp-live");
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", arrive);
  apply();
  arrive();
});
