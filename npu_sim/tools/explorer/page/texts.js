// Words of the page in the language that was chosen: the server sends one table, whose keys are the English words.
let table = {};

export function setTexts(texts, language) {
  table = texts;
  document.documentElement.lang = language;
}

// Holes are written {name}; braces of a text that came from elsewhere stay.
export function t(text, holes = {}) {
  return (table[text] ?? text).replace(/\{(\w+)\}/g, (hole, name) => holes[name] ?? hole);
}

export function translate(root) {
  for (const element of root.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of root.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t(element.dataset.label));
}
