// Where a row has its page: known by the columns of its key, where all of them are there and exact.
export function rowPage(box, row) {
  const names = JSON.parse(box.dataset.key ?? "[]");
  if (!names.length || !names.every((name) => isExact(row[name]))) return null;
  return box.dataset.row + encodeURIComponent(names.map((name) => escaped(`${name}=${row[name]}`)).join(","));
}

// A whole number that JavaScript rounds would lead to another row.
const isExact = (value) =>
  value !== null && value !== undefined && !(typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value));

const escaped = (text) => text.replace(/[\\,]/g, "\\$&");
