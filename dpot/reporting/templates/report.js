// Sortable tables: each heading of a table.sortable becomes a button; a click, Enter or Space sorts its rows.
"use strict";

function value(cell) {
  const text = (cell.dataset.sort !== undefined ? cell.dataset.sort : cell.textContent).trim();
  const number = parseFloat(text.replace("−", "-").replace(/^[+~≈]/, ""));
  return { text, number, isNumber: /^[-+−~≈]?\.?\d/.test(text) && !Number.isNaN(number), isEmpty: text === "" || text === "–" };
}

function compare(a, b) {
  if (a.isEmpty || b.isEmpty) return a.isEmpty - b.isEmpty; // what is missing stays at the end, either way
  if (a.isNumber && b.isNumber) return a.number - b.number;
  return a.text.localeCompare(b.text, "en", { numeric: true });
}

function sort(table, column, heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, key: value(row.cells[column]) }));
  rows.sort((a, b) => {
    const order = compare(a.key, b.key);
    return descending && !a.key.isEmpty && !b.key.isEmpty ? -order : order;
  });
  for (const { row } of rows) body.append(row);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const said = document.getElementById("said");
  if (said) said.textContent = `sorted by ${heading.textContent.trim()}, ${descending ? "descending" : "ascending"}`;
}

for (const table of document.querySelectorAll("table.sortable")) {
  if (!table.tHead || !table.tBodies.length) continue;
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(table, column, heading));
  });
}
