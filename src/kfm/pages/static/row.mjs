// Where a row has its page: known by the columns of its key, where all of them are there.
export function rowPage(box, row) {
  const names = JSON.parse(box.dataset.key ?? "[]");
  if (!names.length || names.some((name) => row[name] === null || row[name] === undefined)) return null;
  return box.dataset.row + encodeURIComponent(names.map((name) => `${name}=${row[name]}`).join(","));
}
