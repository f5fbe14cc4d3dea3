"use strict";
// Tables that are sorted, filtered, copied and downloaded. All texts are set as text, never as markup.

const MINUS = "\u2212", NONE = "\u2013", AT_ONCE = 200, LONG = 48, NAME = 12, HUGE = 400;
const INFINITE = { "∞": Infinity, "−∞": -Infinity };

function dataOf(id) { return JSON.parse(document.getElementById(id).textContent); }

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Return a cell's number, also for texts such as ∞, +0.123 and ≤ 0.0001; NaN for any other text.
function numberOf(value) {
  if (typeof value === "number") return value;
  return INFINITE[value] ?? (/\d/.test(value) ? Number(String(value).replace(/^[≤<] /, "")) : NaN);
}

function numeric(value) { return !Number.isNaN(numberOf(value)); }

function shown(value, ofShares = false) {
  if (value === null) return NONE;
  if (typeof value !== "number") return value;
  const size = Math.abs(value);
  let text;
  if (ofShares && size === 1) text = value.toPrecision(4);  // with as many digits as its neighbours
  else if (Number.isInteger(value) && size < 1e12) text = value.toLocaleString("en");
  else if (size >= 1e3 && size < 1e9) text = value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  else text = size < 1e-4 || size >= 1e9 ? value.toExponential(3) : value.toPrecision(4);
  return text.replaceAll("-", MINUS);
}

function full(value) { return value === null ? "" : String(value); }

function save(name, content, type) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function cell(value) {
  if (typeof value === "number") return String(value);
  const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function csvOf(columns, rows) { return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n"; }

function compare(a, b) {
  const first = numeric(a), second = numeric(b);
  if (first && second) return numberOf(a) - numberOf(b) || 0;
  if (first !== second) return first ? -1 : 1;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sorted(rows, at, descending) {
  return rows.slice().sort((one, other) => {
    const a = one[at], b = other[at];
    if (a === null || b === null) return (a === null) - (b === null);  // missing values stay last
    return descending ? compare(b, a) : compare(a, b);
  });
}

function fillTable(holder) {
  const { name, columns, rows } = dataOf(holder.dataset.from);
  const isNumber = columns.map((_, at) => rows.some((row) => numeric(row[at])) && rows.every((row) => row[at] === null || numeric(row[at])));
  const ofShares = columns.map((_, at) => rows.some((row) => typeof row[at] === "number" && !Number.isInteger(row[at])) && rows.every((row) => typeof row[at] !== "number" || Math.abs(row[at]) <= 1));
  const box = element("input", { type: "search", placeholder: holder.dataset.filter, ariaLabel: holder.dataset.filter });
  const count = element("span", { className: "count" });
  const body = element("tbody");
  const more = element("button", { type: "button", hidden: true });
  const headings = columns.map((text, at) => {
    const button = element("button", { type: "button", textContent: text });
    const heading = element("th", { scope: "col" }, button);
    heading.ariaSort = "none";
    button.addEventListener("click", () => sortBy(at));
    return heading;
  });
  let by = null, descending = false, all = false;

  function matching() {
    const wanted = box.value.toLowerCase();
    const found = wanted === "" ? rows : rows.filter((row) => row.some((value) => typeof value === "string" && value.toLowerCase().includes(wanted)));
    return by === null ? found : sorted(found, by, descending);
  }

  function sortBy(at) {
    if (by === at) descending = !descending;
    else [by, descending] = [at, isNumber[at]];  // numbers begin with the largest
    headings.forEach((each, index) => { each.ariaSort = index === by ? (descending ? "descending" : "ascending") : "none"; });
    fill();
  }

  function fill() {
    const found = matching(), visible = all ? found : found.slice(0, AT_ONCE);
    body.replaceChildren(...visible.map((row) => element("tr", {}, ...row.map((value, at) => {
      const made = element("td", { textContent: shown(value, ofShares[at]) });
      if (isNumber[at]) made.className = "number";
      else if (typeof value === "string" && value.length > HUGE) [made.className, made.title] = ["clipped", value];
      else if (typeof value === "string" && value.length > LONG) made.className = "long";
      else if (at === 0 && typeof value === "string" && value.length > NAME) made.className = "name";
      if (typeof value === "number") made.title = full(value);
      return made;
    }))));
    count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    more.hidden = visible.length === found.length;
    more.textContent = `show all ${found.length.toLocaleString("en")}`;
  }

  box.addEventListener("input", fill);
  more.addEventListener("click", () => { all = true; fill(); });
  const download = element("button", { type: "button", textContent: "CSV", className: "csv" });
  download.addEventListener("click", () => save(`collapse-${name}.csv`, csvOf(columns, matching()), "text/csv"));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...headings)), body);
  const scroll = element("div", { className: "scroll", tabIndex: 0 }, table);
  holder.append(element("div", { className: "tools" }, box, count, download), scroll, more);
  fill();
}

document.querySelectorAll(".table[data-from]").forEach(fillTable);
