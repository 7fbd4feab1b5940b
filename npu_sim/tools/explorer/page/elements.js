// Making and finding elements.
export const byId = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// What the scripts of reports draw.
export const DRAWN = { drawGantt, drawSteps };

// Markup comes from this server, which escapes every text in it.
export function sectionOf(section, level = "h3") {
  const element = make("section", {}, make(level, { textContent: section.title }));
  element.dataset.title = section.title;
  element.insertAdjacentHTML("beforeend", section.html);
  for (const part of element.querySelectorAll(".scroll")) makeReachable(part, section.title);
  pictures.drawAll(DRAWN, element);
  return element;
}

// What scrolls sideways must be reached by keyboard, and what is reached must have a name.
export function makeReachable(part, name) {
  part.tabIndex = 0;
  part.setAttribute("role", "group");
  part.setAttribute("aria-label", name);
}
