"use strict";
// What the pictures drawn in the page have in common. Loaded before the scripts that draw them.
const pictures = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  let translations = {};
  // Takes the translations of npu_sim.show.reports.html, for everything drawn later.
  function setTexts(texts) {
    translations = texts;
  }
  // A text of these scripts in the language of the page, with its {fields} filled in. Texts of the data are translated already.
  const t = (text, fields = {}) => (translations[text] ?? text).replace(/\{(\w+)\}/g, (field, name) => fields[name] ?? field);
  function put(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }
  // An element, and one of SVG: (name, attributes, children...).
  const html = (name, attributes = {}, ...children) => put(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) => put(document.createElementNS(SVG, name), attributes, children);
  const titled = (text, shape) => (shape.append(svg("title", {}, text)), shape);
  function button(text, label, act) {
    const made = html("button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", act);
    return made;
  }
  // An integer as npu_sim.language.count_text shows it: with separators from eight digits on.
  const countText = (value) => (Number.isInteger(value) && Math.abs(value) >= 1e7 ? value.toLocaleString("en-US") : String(value));
  const microseconds = (value) => `${value >= 1000 ? value.toFixed(1) : value.toFixed(3)} us`;
  // A table that starts folded up; rows are lists of texts and numbers.
  function table(summary, headings, rows) {
    const head = html("tr", {}, ...headings.map((text) => html("th", { scope: "col" }, t(text))));
    const cell = (value) => html("td", typeof value === "number" ? { class: "number" } : {}, countText(value));
    const body = rows.map((row) => html("tr", {}, ...row.map(cell)));
    const whole = html("table", {}, html("thead", {}, head), html("tbody", {}, ...body));
    return html("details", {}, html("summary", {}, summary), html("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": summary }, whole));
  }
  // Calls draw(width) now and whenever the element gets another width.
  function whenWide(element, draw) {
    let last = 0;
    const again = () => {
      const width = Math.floor(element.clientWidth);
      if (width && width !== last) draw((last = width));
    };
    new ResizeObserver(again).observe(element);
    again();
  }
  // Values of an axis: round ones, as many as have room, at least `least` apart.
  function ticks(from, to, most, least = 0) {
    const raw = (to - from) / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max([1, 2, 5, 10].map((multiple) => multiple * power).find((multiple) => multiple >= raw) || 10 * power, least);
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to * (1 + 1e-12); at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }
  // Draws every picture below `root`: a figure with a script element that holds its data.
  function drawAll(kinds, root = document) {
    for (const figure of root.querySelectorAll("figure[data-draw]")) {
      kinds[figure.dataset.draw](figure.querySelector("div"), JSON.parse(figure.querySelector("script").textContent));
    }
  }
  return { html, svg, titled, button, countText, microseconds, table, whenWide, ticks, drawAll, setTexts, t };
})();
