// The rows of a version: sorted by a press on a column's name, filtered by words in a column, page by
// page, always asked of the server. Without this the first rows stand there as they are.
import { rowPage } from "./row.mjs";

const SIZE = 25;

class Rows {
  constructor(box) {
    this.box = box;
    this.at = box.dataset.rows;
    this.total = Number(box.dataset.total);
    this.table = box.querySelector("table");
    this.said = document.getElementById("rows-said");
    this.heads = [...this.table.tHead.rows[0].cells];
    this.columns = this.heads.map((head) => head.dataset.column);
    this.types = Object.fromEntries(this.heads.map((head) => [head.dataset.column, head.dataset.type]));
    this.first = JSON.parse(box.dataset.key ?? "[]")[0];
    this.sort = "";
    this.filter = { column: "", words: "" };
    this.offset = 0;
    this.bar();
    this.heads.forEach((head) => this.sortable(head));
  }

  bar() {
    const form = document.createElement("form");
    form.className = "filters small";
    form.setAttribute("aria-label", "Filter rows");
    const column = field(form, "select", "Column", "rows-column");
    for (const name of this.columns) column.append(new Option(name, name));
    const words = field(form, "input", "holds", "rows-words");
    words.type = "search";
    const button = document.createElement("button");
    button.className = "btn";
    button.textContent = "Filter";
    form.append(button);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.filter = { column: column.value, words: words.value.trim() };
      this.offset = 0;
      this.show();
    });
    this.box.before(form);
    this.pager = document.createElement("div");
    this.pager.className = "actions pager";
    this.back = this.turn("Previous", -SIZE);
    this.on = this.turn("Next", SIZE);
    this.box.after(this.pager);
    this.back.disabled = true;
    this.on.disabled = this.table.tBodies[0].rows.length >= this.total;
  }

  turn(name, by) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn";
    button.textContent = name;
    button.addEventListener("click", () => { this.offset = Math.max(0, this.offset + by); this.show(); });
    this.pager.append(button);
    return button;
  }

  sortable(head) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const name = head.dataset.column;
      this.sort = this.sort === name ? `-${name}` : name;
      this.offset = 0;
      for (const other of this.heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", this.sort.startsWith("-") ? "descending" : "ascending");
      this.show();
    });
    head.append(button);
  }

  // What is asked for, in CQL2: words in a text, else a value, `<`, `>` and `=` before it if one likes.
  condition() {
    const { column, words } = this.filter;
    const name = `"${column.replaceAll('"', "")}"`, quoted = (text) => `'${text.replaceAll("'", "''")}'`;
    if (this.types[column] === "string") return `${name} LIKE ${quoted(`%${words}%`)}`;
    const [, sign, value] = /^(<=|>=|<>|[<>=])?\s*(.*)$/s.exec(words);
    const plain = /^(-?\d+(\.\d+)?|true|false)$/.test(value);
    const kind = /^(timestamp|date)/.exec(this.types[column])?.[1].toUpperCase();
    const moment = kind ? `${kind}(${quoted(value)})` : quoted(value);
    return `${name} ${sign ?? "="} ${plain ? value : moment}`;
  }

  async show() {
    const asked = new URLSearchParams({ limit: SIZE });
    if (this.offset) asked.set("token", this.offset);
    if (this.sort) asked.set("sort", this.sort);
    if (this.filter.words) asked.set("filter", this.condition());
    this.box.setAttribute("aria-busy", "true");
    try {
      const told = this.at.endsWith(".json") ? await this.here() : await this.there(asked);
      this.fill(told.rows, told);
    } catch (error) {
      this.said.textContent = `The rows could not be had: ${error.message}`;
    }
    this.box.removeAttribute("aria-busy");
  }

  async there(asked) {
    const answer = await fetch(`${this.at}?${asked}`, { headers: { accept: "application/json" } });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.said ?? answer.statusText);
    return told;
  }

  // In a copy no server answers: the rows that were copied are sorted and filtered here.
  async here() {
    this.all ??= (await (await fetch(this.at)).json()).rows;
    const { column, words } = this.filter, name = this.sort.replace(/^-/, ""), down = this.sort.startsWith("-") ? -1 : 1;
    let rows = words ? this.all.filter((row) => fits(row[column], words, this.types[column] === "string")) : [...this.all];
    if (name) rows.sort((a, b) => down * order(a[name], b[name]));
    const next = this.offset + SIZE < rows.length ? this.offset + SIZE : null;
    return { rows: rows.slice(this.offset, this.offset + SIZE), next, total: rows.length };
  }

  fill(rows, told) {
    const body = document.createElement("tbody");
    for (const row of rows) {
      const line = body.insertRow();
      this.columns.forEach((name, n) => {
        const cell = line.insertCell();
        const at = name === this.first ? rowPage(this.box, row) : null;
        const inside = at ? cell.appendChild(document.createElement("a")) : cell;
        if (at) inside.href = at;
        inside.textContent = shown(row[name]);
        cell.className = this.heads[n].className;
      });
    }
    this.table.tBodies[0].replaceWith(body);
    const last = this.offset + rows.length;
    const of = told.total === null ? "" : ` of ${told.total.toLocaleString("en")}`;
    this.back.disabled = this.offset === 0;
    this.on.disabled = told.next === null;
    this.said.textContent = rows.length ? `Rows ${this.offset + 1} to ${last}${of}.` : "No row fits.";
  }
}

// Nothing comes last; numbers by size, all else as text.
function order(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" && typeof b === "number" ? a - b : shown(a) < shown(b) ? -1 : Number(shown(a) > shown(b));
}

function fits(value, words, within) {
  if (within) return value !== null && String(value).includes(words);
  const [, sign, wanted] = /^(<=|>=|<>|[<>=])?\s*(.*)$/s.exec(words);
  const found = order(value, typeof value === "number" ? Number(wanted) : wanted);
  const holds = { "<": found < 0, ">": found > 0, "<=": found <= 0, ">=": found >= 0, "<>": found !== 0 };
  return value !== null && (holds[sign] ?? found === 0);
}

function field(form, kind, label, id) {
  const box = document.createElement("div"), name = document.createElement("label"), input = document.createElement(kind);
  name.textContent = label;
  name.htmlFor = input.id = id;
  input.className = "field";
  box.append(name, input);
  form.append(box);
  return input;
}

// A place as the server writes it; of one with many points its kind.
const place = ({ type, coordinates }) =>
  type === "Point" ? `POINT (${coordinates.join(" ")})` : `${type.toUpperCase()} …`;

const shown = (value) => {
  if (value?.type && value.coordinates) return place(value);
  const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
};

for (const box of document.querySelectorAll("[data-rows]")) new Rows(box);
