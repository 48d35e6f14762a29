"use strict";
// What all pages share: elements, figures as text, and tables that are sorted by a click.
const report = JSON.parse(document.getElementById("data").textContent);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// 1234567 -> 1.23M; never an exponent.
function short(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit * 0.9995) return trim(value / unit, digits) + name;
  }
  if (size < 1e-6) return trim(value * 1e9, digits) + " n";
  if (size < 1e-3) return trim(value * 1e6, digits) + " µ";
  return trim(value, digits);
}

function trim(value, digits) {
  const whole = Math.max(1, Math.floor(Math.log10(Math.abs(value))) + 1);
  return String(Number(value.toFixed(Math.max(0, Math.min(9, digits - (Math.abs(value) < 1 ? Math.floor(Math.log10(Math.abs(value))) + 1 : whole))))));
}

function shownValue(value, unit) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return unit === "share" ? trimmedPercent(value) : short(value, 4);
}

function trimmedPercent(value) {
  const percent = value * 100;
  return (percent === 0 ? "0" : Math.abs(percent) < 0.1 ? percent.toFixed(2) : percent.toFixed(1)) + " %";
}

// A text in which names of settings stand between backticks.
function withCode(text) { return text.split("`").map((part, at) => (at % 2 ? make("code", { text: part }) : part)); }

function plural(count, noun) { return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`; }

// What a cell is sorted by: its first number if it begins with one, else its text.
const NUMBER = /^[≥±]?\s*([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?=$|[\s%[→])/;

function sortKey(row, at) {
  const text = (row.cells[at]?.dataset.sort ?? row.cells[at]?.textContent ?? "").trim();
  const number = NUMBER.exec(text);
  return number ? Number(number[1].replaceAll(",", "").replace("−", "-")) : text === "–" ? "" : text;
}

// Numbers come first, then texts, then empty cells, whatever the direction.
function compareKeys(a, b, sign) {
  const rank = (key) => (typeof key === "number" ? 0 : key === "" ? 2 : 1);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
}

function sortTable(table, at) {
  const head = table.tHead.rows[0].cells;
  const sign = head[at].ariaSort === "ascending" ? -1 : 1;
  for (const cell of head) cell.ariaSort = null;
  head[at].ariaSort = sign > 0 ? "ascending" : "descending";
  const rows = [...table.tBodies[0].rows];
  table.tBodies[0].append(...rows.sort((a, b) => compareKeys(sortKey(a, at), sortKey(b, at), sign)));
}

// The names of a table's columns become buttons that sort its rows, up at first and then down.
function makeSortable(table) {
  if (!table.tHead || table.tBodies[0].rows.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((cell, at) => {
    cell.replaceChildren(make("button", { type: "button", class: "sort", onclick: () => sortTable(table, at) }, ...cell.childNodes));
  });
}

document.querySelectorAll("table").forEach(makeSortable);

// The list of contents: what the page's headings say.
document.getElementById("contents").append(make("ul", {}, ...[...document.querySelectorAll("main h2")].map((heading, at) => {
  heading.id ||= `part-${at}`;
  return make("li", {}, make("a", { href: `#${heading.id}`, text: heading.textContent }));
})));
