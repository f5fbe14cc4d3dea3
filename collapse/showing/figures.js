"use strict";
// Draw figures when they come into view and when the theme changes; download them as they are drawn.

const PANEL = 270, AXES = 70, NARROWEST = 90, WIDEST = 560, PHONE = 500;  // pixels
const themes = dataOf("themes");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function isObject(value) { return value !== null && typeof value === "object" && !Array.isArray(value); }

function merged(first, second) {
  const made = { ...first };
  for (const [key, value] of Object.entries(second)) made[key] = isObject(value) && isObject(made[key]) ? merged(made[key], value) : value;
  return made;
}

// Specifications do not set the size of panels. Panels that do not fit side by side wrap into rows of nearly equal
// length: four panels become two rows of two, even if three fit into a row.
function columnsOf(spec, width) {
  const fitting = Math.max(1, Math.floor(width / PANEL));
  if (isObject(spec.facet) || spec.repeat) return Math.min(fitting, spec.columns ?? fitting);
  const panels = (spec.concat ?? spec.hconcat ?? [spec]).length;
  const columns = Math.min(fitting, spec.columns ?? panels, panels);
  return Math.ceil(panels / Math.ceil(panels / columns));
}

function sized(spec, width, panel) {
  const columns = columnsOf(spec, width);
  const made = { ...spec };
  if (made.hconcat) { made.concat = made.hconcat; delete made.hconcat; }
  if (made.concat || "columns" in spec) made.columns = columns;
  const view = { continuousWidth: panel, continuousHeight: Math.round(panel * (columns === 1 ? 0.62 : 0.8)) };
  const config = merged(themes[isDark() ? "dark" : "light"], spec.config ?? {});
  if (width < PHONE) config.legend = { ...config.legend, columns: 3, titleOrient: "top", labelLimit: 110 };
  return { ...made, config: { ...config, view: { ...config.view, ...view } } };
}

function rowsOf(spec) {
  const found = [];
  for (const [key, value] of Object.entries(spec)) {
    if (key === "data" && isObject(value)) found.push(...(value.values ?? []));
    else if (key === "datasets" && isObject(value)) found.push(...Object.values(value).flat());
    else if (isObject(value)) found.push(...rowsOf(value));
    else if (Array.isArray(value)) value.filter(isObject).forEach((each) => found.push(...rowsOf(each)));
  }
  return found;
}

function figureOf(holder) {
  const spec = dataOf(holder.dataset.from), name = holder.dataset.name;
  const view = holder.querySelector(".view");
  let embedded = null, wanted = false;

  let last = Promise.resolve();
  function draw() {
    wanted = true;
    last = last.then(drawNow);  // one after the other
    return last;
  }

  async function drawNow() {
    const width = view.clientWidth, columns = columnsOf(spec, width);
    if (!width) return;  // the element has no layout yet
    let panel = Math.max(NARROWEST, Math.min(width / columns - AXES, WIDEST));
    // Draw into a hidden element, and show it when its width fits, so that the page moves only once.
    const inner = element("div"), aside = view.appendChild(element("div", { className: "aside" }, inner));
    let drawn = isDark() ? "dark" : "light", made = null;
    try {
      for (let tries = 0; tries < 3; tries += 1) {
        made?.finalize();
        made = await vegaEmbed(inner, sized(spec, width, panel), { mode: "vega-lite", actions: false, ast: true, renderer: "svg" });
        const excess = inner.querySelector("svg").getBoundingClientRect().width - width;
        if (excess <= 0 || panel <= NARROWEST) break;
        panel = Math.max(NARROWEST, panel - Math.ceil(excess / columns));
      }
    } catch (error) {
      drawn = "failed";
      inner.textContent = `This figure cannot be drawn: ${error.message}`;
    }
    embedded?.finalize();
    embedded = made;
    aside.className = "";
    view.replaceChildren(aside);
    view.dataset.drawn = drawn;
  }

  async function picture(kind) {
    if (!embedded) await draw();
    if (kind === "svg") save(`collapse-${name}.svg`, await embedded.view.toSVG(), "image/svg+xml");
    else {
      const canvas = await embedded.view.toCanvas(2);
      canvas.toBlob((blob) => save(`collapse-${name}.png`, blob, "image/png"), "image/png");
    }
  }

  function numbers() {
    const rows = rowsOf(spec), columns = [...new Set(rows.flatMap(Object.keys))];
    save(`collapse-${name}.csv`, csvOf(columns, rows.map((row) => columns.map((each) => row[each] ?? null))), "text/csv");
  }

  const tools = {
    SVG: () => picture("svg"),
    PNG: () => picture("png"),
    CSV: numbers,
    "Vega-Lite": () => save(`collapse-${name}.vl.json`, JSON.stringify(spec, null, 1), "application/json"),
  };
  const buttons = Object.entries(tools).map(([text, act]) => {
    const button = element("button", { type: "button", textContent: text, title: `download ${text}` });
    button.addEventListener("click", act);
    return button;
  });
  holder.querySelector(".tools").append(...buttons);
  return { view, draw, redraw: () => { if (wanted) draw(); } };
}

const figures = [...document.querySelectorAll("figure[data-from]")].map(figureOf);
const seen = new IntersectionObserver((entries) => entries.filter((each) => each.isIntersecting).forEach((each) => {
  seen.unobserve(each.target);
  figures.find((figure) => figure.view === each.target).draw();
}), { rootMargin: "400px" });
figures.forEach((figure) => seen.observe(figure.view));

function redraw() { figures.forEach((figure) => figure.redraw()); }

document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.addEventListener("beforeprint", () => figures.forEach((figure) => figure.draw()));
let before = document.body.clientWidth;
window.addEventListener("resize", () => {
  if (Math.abs(before - document.body.clientWidth) > 20) { before = document.body.clientWidth; redraw(); }
});
