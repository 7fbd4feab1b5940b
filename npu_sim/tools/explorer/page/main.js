// The page: asks for a new plan with every change, and shows the newest answer.
import { OTHER, WHERE, defaults, isCompared, named, operatorOf, productOf, productOfFirst, readAddress, session, stateOf, writeAddress } from "./address.js";
import { byId } from "./elements.js";
import { addCall, build, buildLanguage, listen, showImplied, showNumbers, showProblem } from "./fields.js";
import { acceptFiles } from "./files.js";
import { cancel, follow, isRunning, post } from "./jobs.js";
import { Pane, align, markDifferences } from "./panes.js";
import { copy, saveSnapshot } from "./sharing.js";
import { setTexts, t, translate } from "./texts.js";

const panes = { first: null, second: null };
const actions = { change: changePart, run, looked: showDifferences };

async function loadCatalog() {
  const language = new URLSearchParams(location.hash.slice(1)).get("lang") || session.state.lang || "";
  const query = new URLSearchParams({ lang: language, browser: navigator.languages.join() });
  session.catalog = await (await fetch(`api/catalog?${query}`)).json();
  setTexts(session.catalog.texts, session.catalog.language);
  pictures.setTexts(session.catalog.picture_texts);
}

// Widths up to which the result comes first: the fields are folded up.
const isNarrow = () => window.matchMedia("(max-width: 860px)").matches;
const shownPanes = () => [panes.first, panes.second].filter(Boolean);

function open() {
  translate(document);
  panes.first = panes.second = null;
  byId("panes").replaceChildren();
  byId("calls").replaceChildren();
  addPane("first", "", !isNarrow() && !isCompared());
  arrange();
  ask();
}

function addPane(place, prefix, isOpen) {
  panes[place] = new Pane(prefix, actions);
  byId("panes").append(panes[place].element);
  addCall(prefix, isOpen).querySelector(".reset").addEventListener("click", () => reset(prefix));
}

// Open or close the second pane as the state has it, and build the fields anew.
function arrange() {
  if (isCompared() && panes.second === null) {
    addPane("second", OTHER, false);
  } else if (!isCompared() && panes.second !== null) {
    panes.second.element.remove();
    panes.second = null;
    byId("calls").lastElementChild.remove();
  }
  document.querySelector(".page").classList.toggle("two", panes.second !== null);
  byId("compare").textContent = panes.second ? t("close the second pane") : t("compare with another call");
  byId("compare").setAttribute("aria-expanded", String(panes.second !== null));
  buildLanguage();
  for (const pane of shownPanes()) build(pane.prefix);
}

function set(key, value) {
  const { state } = session;
  const prefix = key.startsWith(OTHER) ? OTHER : "";
  const name = key.slice(prefix.length);
  if (name === "operator") setOperator(prefix, named(value));
  else if (name === "product" && productOf(value)) session.state = { ...state, [key]: value, [`${prefix}soc`]: productOf(value).default_soc };
  else session.state = { ...state, [key]: value };
}

// Another operator starts at its defaults, that of the second pane at the first one's sizes of the same names.
function setOperator(prefix, operator) {
  const isKept = (name) => name === "lang" || name.startsWith(OTHER) !== (prefix === OTHER) || WHERE.includes(name.slice(prefix.length));
  const kept = Object.fromEntries(Object.entries(session.state).filter(([name]) => isKept(name)));
  const values = { ...defaults(operator, productOfFirst()), ...(prefix === OTHER ? sharedSizes(operator) : {}) };
  session.state = { ...Object.fromEntries(Object.entries(values).map(([name, value]) => [prefix + name, value])), ...kept };
}

function sharedSizes(operator) {
  const names = operator.axes.filter((axis) => axis.kind === "number" && axis.name in session.state).map((axis) => axis.name);
  return Object.fromEntries(names.map((name) => [name, session.state[name]]));
}

// The first call goes back to the defaults, the second one to the operator and the sizes of the first one.
function reset(prefix) {
  const { state } = session;
  const isOthers = ([name]) => name.startsWith(OTHER);
  const isWhere = ([name]) => WHERE.includes(name.slice(OTHER.length));
  const entries = Object.entries(state);
  const second = entries.filter((entry) => isOthers(entry) && (prefix === "" || isWhere(entry)));
  const first = prefix === "" ? { ...defaults(operatorOf(), productOfFirst()), lang: state.lang } : stateOf("");
  session.state = { ...first, ...Object.fromEntries(second) };
  writeAddress();
  arrange();
  ask();
}

async function change(name, value, typedIn = null) {
  set(name, value);
  writeAddress(typedIn === null ? null : name);
  if (name === "lang") {
    await loadCatalog();
    open();
    byId("field-lang").focus();
    return;
  }
  if (typedIn === null) rebuild(name);
  else if (panes.second && !name.startsWith(OTHER)) build(OTHER); // it may have the value that was typed
  ask();
}

// Build the fields anew and keep the focus where it was.
function rebuild(name) {
  const hadFocus = document.activeElement?.id === `field-${name}`;
  arrange();
  if (hadFocus) byId(`field-${name}`)?.focus();
}

// A chip of a pane changes this pane. Chips go; the focus waits at what comes of it.
function changePart(name, value, prefix) {
  change(prefix + name, value);
  (prefix === "" ? panes.first : panes.second).find(".headline").focus({ preventScroll: true });
}

// One question is on its way at a time; what is changed meanwhile is asked when it is answered.
let isAsking = false;
let isChanged = false;

async function ask() {
  isChanged = true;
  if (isAsking) return;
  isAsking = true;
  document.body.dataset.state = "asking";
  while (isChanged) {
    isChanged = false;
    await Promise.all(shownPanes().map((pane) => pane.ask()));
    showAnswers();
  }
  isAsking = false;
  document.body.dataset.state = "still"; // what is looked into besides comes later
}

function showAnswers() {
  for (const { answer, prefix, element } of shownPanes()) {
    if (answer === null) return; // the page was opened anew meanwhile, and asks again
    showNumbers(prefix, answer.numbers || {});
    showImplied(prefix, answer.arguments || {});
    showProblem(prefix, answer.error);
    element.querySelector(".run").disabled ||= isRunning();
  }
  document.title = shownPanes().map((pane) => pane.find(".headline").textContent).join(" | ");
  showDifferences();
}

function showDifferences() {
  const names = markDifferences(panes.first, panes.second);
  byId("differences").hidden = names === null;
  if (names !== null) byId("differences").textContent = names.length ? t("marked with ≠, different: {names}", { names: names.join(", ") }) : t("nothing is different");
  if (panes.second) align(panes.first, panes.second);
}

async function run(query) {
  const answer = follow(t("Run on generated data"), () => post("api/run", JSON.stringify(Object.fromEntries(query))));
  byId("job").scrollIntoView({ block: "nearest" });
  for (const button of document.querySelectorAll("button.run")) button.disabled = true;
  await answer;
  for (const pane of shownPanes()) pane.find(".run").disabled = !pane.answer?.lines;
}

function compare() {
  if (isCompared()) session.state = stateOf("");
  else for (const name of WHERE) session.state[OTHER + name] = session.state[name];
  writeAddress();
  arrange();
  for (const call of byId("calls").children) call.open = !isNarrow();
  ask();
}

// A product of one's own is put beside the one that is shown.
async function choose(product) {
  if (!isCompared()) for (const name of WHERE) session.state[OTHER + name] = session.state[name];
  await loadCatalog();
  set(OTHER + "product", product);
  writeAddress();
  arrange();
  ask();
}

async function begin() {
  await loadCatalog();
  readAddress();
  listen(change);
  open();
  window.addEventListener("hashchange", async () => {
    await loadCatalog();
    readAddress();
    open();
  });
  byId("form").addEventListener("submit", (event) => event.preventDefault());
  byId("compare").addEventListener("click", compare);
  byId("copy-link").addEventListener("click", (event) => copy(event.currentTarget, location.href));
  byId("snapshot").addEventListener("click", saveSnapshot);
  byId("cancel").addEventListener("click", cancel);
  acceptFiles(choose);
}

begin();
