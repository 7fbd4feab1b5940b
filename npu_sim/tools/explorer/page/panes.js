// A pane: one call on one product, its plan or its refusal, and what can be done with it.
import { queryOf } from "./address.js";
import { DRAWN, byId, make, sectionOf } from "./elements.js";
import { read, silence } from "./jobs.js";
import { copy } from "./sharing.js";
import { t, translate } from "./texts.js";

const BLOCKS = ["lines-of-plan", "lines-of-bound"];
const QUIET = 250; // milliseconds after which an answer is looked into: nobody types any more

export class Pane {
  // `prefix` begins the names of what this pane changes; `actions` are change(name, value, prefix), run(query) and looked().
  constructor(prefix, actions) {
    Object.assign(this, { prefix, actions, answer: null, asked: 0 });
    this.element = byId("pane").content.firstElementChild.cloneNode(true);
    this.element.id = prefix === "" ? "first" : "second";
    translate(this.element);
    for (const form of ["cli", "python"]) this.find(`.copy-${form}`).addEventListener("click", (event) => copy(event.currentTarget, this.answer[form]));
    this.find(".run").addEventListener("click", () => actions.run(queryOf(prefix)));
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  async ask() {
    const number = ++this.asked;
    const query = queryOf(this.prefix);
    this.element.classList.add("stale");
    const reply = await fetched(`api/plan?${query}`);
    if (number !== this.asked) return;
    this.show(reply, query);
    const look = reply.lines ? this.lookAtWork : this.lookForOthers;
    setTimeout(() => number === this.asked && look.call(this, number, query), QUIET);
  }

  show(reply, query) {
    this.answer = reply;
    const runs = "lines" in reply; // also a plan whose buffers overflow
    const headline = this.find(".headline");
    headline.className = reply.outcome === "runs" ? "headline good" : "headline bad";
    headline.textContent = runs ? reply.headline : reply.text.split("\n")[0];
    this.find(".refusal").hidden = runs;
    this.find(".refusal").textContent = runs ? "" : reply.text.split("\n").slice(1).join("\n").trim();
    this.find(".nearest").hidden = true;
    for (const part of this.element.querySelectorAll(".result")) part.hidden = !runs;
    this.element.classList.remove("stale");
    this.find(".command").textContent = reply.cli || "";
    this.find(".command").hidden = !reply.cli;
    for (const form of ["cli", "python"]) this.find(`.copy-${form}`).disabled = !reply.cli;
    this.find(".run").disabled = !runs;
    for (const file of ["report", "trace", "json"]) {
      this.find(`a.${file}`).hidden = !runs;
      this.find(`a.${file}`).href = `api/${file}?${query}`;
    }
    this.find(".took").textContent = runs ? t("planned in {milliseconds} ms", { milliseconds: reply.milliseconds.toFixed(1) }) : "";
    if (runs) this.showPlan(reply);
  }

  showPlan(reply) {
    this.find(".lines-of-plan").innerHTML = reply.lines; // markup of this server, which escapes every text in it
    for (const part of this.element.querySelectorAll(".follows")) part.classList.add("stale");
    this.showSections(".at-once", reply.sections);
  }

  // Sections that are as they were stay; in others what was folded open is open again.
  showSections(selector, sections) {
    const place = this.find(selector);
    const open = new Set([...place.querySelectorAll("details[open]")].map((element) => element.dataset.key));
    const shown = new Map([...place.children].map((child) => [child.markup, child]));
    place.replaceChildren(...sections.map((section) => {
      if (shown.has(section.html)) return shown.get(section.html);
      const element = sectionOf(section);
      element.markup = section.html;
      element.querySelectorAll("details").forEach((details, number) => {
        details.dataset.key = `${section.title} ${number}`;
        details.open = open.has(details.dataset.key);
      });
      return element;
    }));
  }

  // Show what would run instead of a refused call.
  async lookForOthers(number, query) {
    const reply = await fetched(`api/nearest?${query}`);
    if (number !== this.asked || !reply.changes) return;
    this.find(".nearest").hidden = reply.changes.length === 0;
    this.find(".nearest .chips").replaceChildren(...reply.changes.map((change) => this.chip(change.key, change.value, change.path ? t("runs: {path}", { path: change.path }) : "", false)));
    this.find(".nearest .sections").replaceChildren(...reply.sections.map((section) => sectionOf(section, "h4")));
    this.actions.looked();
  }

  // Show what follows from a plan, and draw what its cores do; the scripts of reports do it.
  async lookAtWork(number, query) {
    const work = await fetched(`api/work?${query}`);
    if (number !== this.asked || !work.bound) return;
    for (const part of this.element.querySelectorAll(".follows")) part.classList.remove("stale");
    this.find(".lines-of-bound").innerHTML = work.bound;
    this.showSections(".after", work.sections);
    this.find(".changes").hidden = work.changes.length === 0;
    this.find(".changes .chips").replaceChildren(...work.changes.map((change) => this.chip(change.argument, change.value, outcomeOf(change), change.outcome !== "runs")));
    for (const [place, draw, data] of [[".time", DRAWN.drawGantt, work.time], [".steps-of-a-core", DRAWN.drawSteps, work.steps]]) {
      this.find(place).hidden = !data;
      if (data) draw(this.find(`${place} .drawn`), data);
    }
    this.actions.looked();
  }

  chip(name, value, leads, isBad) {
    const button = make("button", { type: "button" }, `${name} = ${value} `, make("small", { className: isBad ? "bad" : "", textContent: leads }));
    button.addEventListener("click", () => this.actions.change(name, String(value), this.prefix));
    return button;
  }
}

function outcomeOf(change) {
  if (change.refusal) return t("refused: {why}", { why: change.refusal });
  if (change.outcome !== "runs") return t("overflows: {path}", { path: change.path });
  return change.changes_path ? t("selects {path}", { path: change.path }) : t("same path; {effect}", { effect: change.effect });
}

async function fetched(address) {
  try {
    return await read(await fetch(address));
  } catch {
    return silence();
  }
}

// Mark what two panes say differently, line by line, and return the names of the lines; without a second one nothing is marked.
export function markDifferences(first, second) {
  for (const sign of document.querySelectorAll(".sign")) sign.remove();
  for (const marked of document.querySelectorAll(".differs")) marked.classList.remove("differs");
  if (!first.answer?.lines || !second?.answer?.lines) return null;
  const names = new Set();
  for (const block of BLOCKS) {
    const [left, right] = keyed(linesOf(first.find(`.${block}`)), linesOf(second.find(`.${block}`)));
    for (const key of new Set([...left.keys(), ...right.keys()])) {
      if (left.get(key)?.text === right.get(key)?.text) continue;
      names.add((left.get(key) || right.get(key)).name);
      for (const line of [left.get(key), right.get(key)]) if (line) mark(line.element);
    }
  }
  return [...names];
}

// Lines of a block: their label, what they are about where several have one label (the output of an order, the code of a caveat), and
// what is compared: of an order whether it is fixed, not the reason.
function linesOf(block) {
  const lines = [];
  let name = "";
  for (const term of block.querySelectorAll("dt")) {
    name = term.textContent || name;
    const element = term.nextElementSibling;
    const value = element.querySelector("span:not(.sign)").textContent;
    const kind = element.classList[0];
    const subject = { order: value.split(" ")[0], caveat: element.querySelector("small").textContent }[kind] || "";
    lines.push({ name, subject, term, element, text: kind === "order" ? value : element.textContent });
  }
  return lines;
}

// Lines of two blocks by key: by label and subject where both have it, otherwise by label and how often it was there before.
function keyed(left, right) {
  const subjects = [left, right].map((lines) => new Set(lines.map((line) => `${line.name} ${line.subject}`)));
  return [left, right].map((lines, side) => {
    const found = new Map();
    for (const line of lines) {
      const about = `${line.name} ${line.subject}`;
      let key = line.subject && subjects[1 - side].has(about) ? about : line.name;
      while (found.has(key)) key += "'";
      found.set(key, line);
    }
    return found;
  });
}

function mark(element) {
  element.classList.add("differs");
  element.prepend(make("span", { className: "sign", textContent: "≠ " }));
}

// Parts of a pane that stand in a row of their own, in the order in which they are shown.
const ROWS = ".headline, .refusal, .nearest, .buttons, .command, .plan > h3, .lower-bound > h3, .result > section:not(.plan, .lower-bound), .sections > section";

// Elements of a pane by the row that they share with the other pane: parts of the page, sections by their titles, lines by their keys.
function rowsOf(pane, keys) {
  const rows = new Map();
  const parts = [...pane.element.querySelectorAll(ROWS)].filter((part) => !part.parentElement.closest(".nearest"));
  for (const part of parts) {
    rows.set(part.dataset.title || `${part.parentElement.classList[0]} ${part.localName} ${part.classList[0]}`, [part]);
    const block = part.localName === "h3" ? part.nextElementSibling : null;
    if (block) for (const [key, { term, element }] of keys.get(block.className) || []) rows.set(`${block.className} ${key}`, [term, element]);
  }
  return rows;
}

// Give what two panes show of the same thing the same row of the grid; what only one of them shows leaves an empty place in the other.
export function align(first, second) {
  const keys = [new Map(), new Map()];
  for (const block of BLOCKS) keyed(linesOf(first.find(`.${block}`)), linesOf(second.find(`.${block}`))).forEach((found, side) => keys[side].set(block, found));
  const [left, right] = [rowsOf(first, keys[0]), rowsOf(second, keys[1])];
  const order = [...left.keys()];
  [...right.keys()].forEach((key, position, keys) => {
    if (!left.has(key)) order.splice(order.indexOf(keys[position - 1]) + 1, 0, key);
  });
  for (const [key, elements] of [...left, ...right]) for (const element of elements) element.style.setProperty("--row", order.indexOf(key) + 1);
  byId("panes").style.setProperty("--rows", order.length);
}
