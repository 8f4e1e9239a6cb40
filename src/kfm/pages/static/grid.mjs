// A grid is one stop of the Tab key (today, first row); arrows move inside, row names included.
// Without this every cell is an ordinary link.
const seen = (row) => (row ?? []).filter((cell) => cell.offsetParent); // hidden days are skipped

export function grids() {
  for (const table of document.querySelectorAll("table.heat")) {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows])
      .map((row) => [...row.querySelectorAll("th a, .cell")]).filter((row) => row.length);
    if (!rows.length) continue;
    const enter = seen(rows[0]).at(-1) ?? rows[0][0];
    for (const cell of rows.flat()) cell.tabIndex = cell === enter ? 0 : -1;
    table.addEventListener("keydown", (event) => move(event, rows));
  }
}

function move(event, rows) {
  const y = rows.findIndex((row) => row.includes(event.target));
  if (y < 0) return;
  const row = seen(rows[y]), x = row.indexOf(event.target);
  const next = {
    ArrowLeft: row[x - 1], ArrowRight: row[x + 1], ArrowUp: seen(rows[y - 1])[x],
    ArrowDown: seen(rows[y + 1])[x], Home: row[0], End: row.at(-1),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
