// The page: asks for a new plan with every change, and shows the newest answer.
import { OTHER, WHERE, defaults, isCompared, operatorOf, productOf, readAddress, session, writeAddress } from "./address.js";
import { byId } from "./elements.js";
import { build, listen, showImplied, showNumbers, showProblem } from "./fields.js";
import { acceptFiles } from "./files.js";
import { cancel, follow, isRunning, post } from "./jobs.js";
import { Pane, markDifferences } from "./panes.js";
import { copy } from "./sharing.js";
import { setTexts, t, translate } from "./texts.js";

const panes = { first: null, second: null };
const actions = { change: changePart, run, looked: showDifferences };

async function loadCatalog() {
  const language = new URLSearchParams(location.hash.slice(1)).get("lang") || session.state.lang || "";
  session.catalog = await (await fetch(`api/catalog?${new URLSearchParams({ lang: language })}`)).json();
  setTexts(session.catalog.texts, session.catalog.language);
  pictures.speak(session.catalog.picture_texts);
}

function open() {
  translate(document);
  panes.first = new Pane("", actions);
  panes.second = null;
  byId("panes").replaceChildren(panes.first.element);
  build(null);
  arrange();
  ask();
}

// Open or close the second pane as the state has it.
function arrange() {
  if (isCompared() && panes.second === null) {
    panes.second = new Pane(OTHER, actions);
    byId("panes").append(panes.second.element);
  } else if (!isCompared() && panes.second !== null) {
    panes.second.element.remove();
    panes.second = null;
  }
  byId("panes").classList.toggle("two", panes.second !== null);
  byId("compare").textContent = panes.second ? t("close the second pane") : t("compare with another product, SoC, release or switch");
  byId("compare").setAttribute("aria-expanded", String(panes.second !== null));
  build(panes.second?.find(".where"));
}

function set(name, value) {
  const { state } = session;
  if (name === "operator") {
    const kept = Object.fromEntries(Object.entries(state).filter(([one]) => one === "lang" || WHERE.includes(one.replace(OTHER, ""))));
    session.state = { ...defaults(operatorOf(value), productOf(state.product)), ...kept };
  } else if (name.endsWith("product") && productOf(value)) {
    session.state = { ...state, [name]: value, [name.replace("product", "soc")]: productOf(value).default_soc };
  } else {
    session.state = { ...state, [name]: value };
  }
}

async function change(name, value, typedIn = null) {
  set(name, value);
  writeAddress();
  if (name === "lang") {
    await loadCatalog();
    open();
    byId("field-lang").focus();
    return;
  }
  if (typedIn === null) rebuild(name);
  ask();
}

// Build the fields anew and keep the focus where it was.
function rebuild(name) {
  const hadFocus = document.activeElement?.id === `field-${name}`;
  arrange();
  if (hadFocus) byId(`field-${name}`)?.focus();
}

// A chip of a pane changes what only this pane has there, or what both have. Chips go; the focus waits at what comes of it.
function changePart(name, value, prefix) {
  change(prefix !== "" && WHERE.includes(name) ? prefix + name : name, value);
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
    await Promise.all([panes.first, panes.second].filter(Boolean).map((pane) => pane.ask()));
    showAnswers();
  }
  isAsking = false;
  document.body.dataset.state = "still"; // what is looked into besides comes later
}

function showAnswers() {
  const { answer } = panes.first;
  if (answer === null) return; // the page was opened anew meanwhile, and asks again
  showNumbers(answer.numbers || {});
  showImplied(answer.arguments || {});
  showProblem("", answer.error);
  if (panes.second) showProblem(OTHER, panes.second.answer?.error);
  for (const pane of [panes.first, panes.second].filter(Boolean)) pane.find(".run").disabled ||= isRunning();
  showDifferences();
}

function showDifferences() {
  const names = markDifferences(panes.first, panes.second);
  byId("differences").hidden = names === null;
  if (names !== null) byId("differences").textContent = names.length ? t("marked with ≠, different: {names}", { names: names.join(", ") }) : t("nothing is different");
}

async function run(query) {
  const answer = follow(t("Run on generated data"), () => post("api/run", JSON.stringify(Object.fromEntries(query))));
  byId("job").scrollIntoView({ block: "nearest" });
  for (const button of document.querySelectorAll("button.run")) button.disabled = true;
  await answer;
  for (const pane of [panes.first, panes.second].filter(Boolean)) pane.find(".run").disabled = !pane.answer?.lines;
}

function compare() {
  const names = WHERE.map((name) => OTHER + name);
  if (isCompared()) session.state = Object.fromEntries(Object.entries(session.state).filter(([name]) => !name.startsWith(OTHER)));
  else for (const [place, name] of WHERE.entries()) session.state[names[place]] = session.state[name];
  writeAddress();
  arrange();
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
  byId("reset").addEventListener("click", () => {
    const { lang } = session.state;
    session.state = { ...defaults(operatorOf(), productOf(session.state.product) || session.catalog.products[0]), lang };
    writeAddress();
    arrange();
    ask();
  });
  byId("compare").addEventListener("click", compare);
  byId("copy-link").addEventListener("click", (event) => copy(event.currentTarget, location.href));
  byId("cancel").addEventListener("click", cancel);
  acceptFiles(choose);
}

begin();
