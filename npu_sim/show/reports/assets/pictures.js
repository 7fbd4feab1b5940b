"use strict";
// What the pictures drawn in the page have in common. Loaded before gantt.js and steps.js.
const pictures = (() => {
  const SVG = "http://www.w3.org/2000/svg";
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
  const microseconds = (value) => `${value >= 1000 ? value.toFixed(1) : value.toFixed(3)} us`;
  // A table that starts folded up; rows are lists of texts and numbers.
  function table(summary, headings, rows) {
    const head = html("tr", {}, ...headings.map((text) => html("th", { scope: "col" }, text)));
    const cell = (value) => html("td", typeof value === "number" ? { class: "number" } : {}, String(value));
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
  // Draws every picture of a report: a figure with a script element that holds its data.
  function drawAll(kinds) {
    for (const figure of document.querySelectorAll("figure[data-draw]")) {
      kinds[figure.dataset.draw](figure.querySelector("div"), JSON.parse(figure.querySelector("script").textContent));
    }
  }
  return { html, svg, titled, button, microseconds, table, whenWide, drawAll };
})();
