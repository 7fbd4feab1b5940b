"use strict";
// The page has one state, a flat map of texts, mirrored in the address bar after '#'. Every change asks the server for a new
// plan; an answer that arrives after a newer question is dropped.
const byId = (id) => document.getElementById(id);
let catalog = null;
let state = {};
let asked = 0;
let answer = null;

const operatorOf = () => catalog.operators.find((one) => one.name === state.operator) || catalog.operators[0];
const productOf = () => catalog.products.find((one) => one.name === state.product) || catalog.products[0];

function defaults(operator, product) {
  const values = { operator: operator.name, product: product.name, soc: product.default_soc, release: catalog.default_release, deterministic: "false", limits: "documented" };
  for (const axis of operator.axes) values[axis.name] = axis.default;
  for (const attribute of operator.attributes) values[attribute.name] = attribute.default;
  return values;
}

function readAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const operator = catalog.operators.find((one) => one.name === given.operator) || catalog.operators[0];
  const wanted = catalog.products.find((one) => one.name === given.product);
  const product = wanted || catalog.products.find((one) => one.name === "atlas_a2") || catalog.products[0];
  state = { ...defaults(operator, product), ...given };
}

function writeAddress() {
  const shown = Object.entries(state).filter(([, value]) => value !== "");
  history.replaceState(null, "", "#" + new URLSearchParams(shown));
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function field(name, help, ...inputs) {
  const label = make("label", { textContent: name, title: help, htmlFor: `field-${name}` });
  return make("div", { className: "field" }, label, ...inputs);
}

function choice(name, values, titles = values) {
  const options = values.map((value, index) => make("option", { value, textContent: titles[index] }));
  const select = make("select", { id: `field-${name}`, name }, ...options);
  if (!values.includes(state[name])) select.append(make("option", { value: state[name], textContent: state[name] }));
  select.value = state[name];
  select.addEventListener("change", () => change(name, select.value));
  return select;
}

function checkbox(name) {
  const box = make("input", { type: "checkbox", id: `field-${name}`, name, checked: state[name] === "true" });
  box.addEventListener("change", () => change(name, String(box.checked)));
  return box;
}

function text(name, placeholder = "") {
  const input = make("input", { type: "text", id: `field-${name}`, name, value: state[name] || "", placeholder, spellcheck: false });
  input.addEventListener("input", () => change(name, input.value.trim(), input));
  return input;
}

// Sizes grow by factors: a slider is logarithmic from its lowest value (at least 1) to its top, and its left end is the lowest
// value itself; short ranges are linear.
const STEPS = 1000;
const SHORT_RANGE = 64;
const isShort = (axis) => axis.top - axis.low <= SHORT_RANGE;
const slider = {
  value(axis, position) {
    if (isShort(axis)) return Math.round(axis.low + ((axis.top - axis.low) * position) / STEPS);
    if (position === 0) return axis.low;
    const lowest = Math.max(axis.low, 1);
    return Math.round(lowest * (axis.top / lowest) ** (position / STEPS));
  },
  position(axis, value) {
    if (isShort(axis)) return Math.round((STEPS * (value - axis.low)) / Math.max(axis.top - axis.low, 1));
    const lowest = Math.max(axis.low, 1);
    return value <= axis.low ? 0 : Math.round((STEPS * Math.log(value / lowest)) / Math.log(axis.top / lowest));
  },
};

function size(axis) {
  const input = make("input", { type: "text", inputMode: "numeric", id: `field-${axis.name}`, name: axis.name, value: state[axis.name] });
  const range = make("input", { type: "range", min: 0, max: STEPS, id: `slider-${axis.name}`, value: slider.position(axis, Number(state[axis.name])) });
  range.setAttribute("aria-label", `${axis.name}, slider`);
  input.addEventListener("input", () => {
    range.value = slider.position(axis, Number(input.value));
    change(axis.name, input.value.trim(), input);
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!step || !/^[0-9]+$/.test(input.value)) return;
    event.preventDefault();
    input.value = Math.max(axis.low, Number(input.value) + step);
    input.dispatchEvent(new Event("input"));
  });
  range.addEventListener("input", () => {
    input.value = slider.value(axis, Number(range.value));
    change(axis.name, input.value, range);
  });
  return [input, range];
}

function axisField(axis) {
  if (axis.kind === "word") return field(axis.name, axis.help, choice(axis.name, axis.words));
  if (axis.kind === "switch") return field(axis.name, axis.help, checkbox(axis.name));
  return field(axis.name, axis.help, ...size(axis));
}

function build() {
  const operator = operatorOf();
  const names = catalog.products.map((one) => one.name);
  byId("where").replaceChildren(
    field("operator", "the operator", choice("operator", catalog.operators.map((one) => one.name), catalog.operators.map((one) => one.title))),
    field("product", "the product", choice("product", names, catalog.products.map((one) => `${one.title} (${one.name})`))),
    field("soc", "SoC of the product", choice("soc", productOf().socs)),
    field("release", "release of the product's software", choice("release", catalog.releases)),
    field("deterministic", "deterministic computation", checkbox("deterministic")),
    field("limits", "documented: what the documents state; hardware: what really fits", choice("limits", ["documented", "hardware"])),
  );
  byId("axes").replaceChildren(...operator.axes.map(axisField));
  const isSwitch = (one) => one.default === "true" || one.default === "false";
  byId("attributes").replaceChildren(...operator.attributes.map((one) => field(one.name, one.help, isSwitch(one) ? checkbox(one.name) : text(one.name))));
  byId("attributes").parentElement.hidden = operator.attributes.length === 0;
  byId("tensors").replaceChildren(...operator.tensors.map((one) => field(one.name, one.help, text(one.name, "as implied"))));
}

function change(name, value, from = null) {
  if (name === "operator") {
    state = { ...defaults(catalog.operators.find((one) => one.name === value), productOf()), soc: state.soc, release: state.release, deterministic: state.deterministic, limits: state.limits };
  } else if (name === "product") {
    state = { ...state, product: value, soc: catalog.products.find((one) => one.name === value).default_soc };
  } else {
    state = { ...state, [name]: value };
  }
  if (from === null) build();
  writeAddress();
  ask();
}

async function ask() {
  const number = ++asked;
  byId("result").classList.add("stale");
  const query = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== ""));
  try {
    const reply = await (await fetch("api/plan?" + query)).json();
    if (number === asked) show(reply);
  } catch (error) {
    if (number === asked) show({ outcome: "failed", text: "the explorer does not answer: is npu-sim explore still running?" });
  }
}

function show(reply) {
  answer = reply;
  const runs = Boolean(reply.plan);
  const headline = byId("headline");
  headline.className = reply.outcome === "runs" ? "good" : "bad";
  headline.textContent = runs ? reply.headline : reply.text.split("\n")[0];
  byId("refusal").hidden = runs;
  byId("refusal").textContent = runs ? "" : reply.text.split("\n").slice(1).join("\n").trim();
  byId("result").hidden = !runs;
  byId("result").classList.remove("stale");
  byId("command").textContent = reply.cli || "";
  byId("command").hidden = !reply.cli;
  for (const id of ["copy-cli", "copy-python"]) byId(id).disabled = !reply.cli;
  byId("run").disabled = !runs || running;
  byId("took").textContent = runs ? `planned in ${reply.milliseconds.toFixed(1)} ms` : "";
  for (const [name, spec] of Object.entries(reply.arguments || {})) {
    const input = byId(`field-${name}`);
    if (input && input.type === "text" && !state[name]) input.placeholder = spec;
  }
  if (!runs) return;
  // Markup comes from this server, which escapes every text in it.
  byId("lines").innerHTML = reply.lines;
  byId("bound").innerHTML = reply.bound;
  const open = new Set([...document.querySelectorAll("#sections details[open]")].map((one) => one.dataset.key));
  byId("sections").replaceChildren(...reply.sections.map((section) => {
    const element = make("section", {}, make("h2", { textContent: section.title }));
    element.insertAdjacentHTML("beforeend", section.html);
    for (const details of element.querySelectorAll("details")) {
      details.dataset.key = section.title;
      details.open = open.has(section.title);
    }
    return element;
  }));
  byId("flips-section").hidden = reply.flips.length === 0;
  byId("flips").replaceChildren(...reply.flips.map((flip) => {
    const button = make("button", { type: "button", disabled: flip.key === null, className: flip.outcome === "runs" ? "" : "bad", title: flip.refusal || flip.decision }, `${flip.argument} ${flip.value} \u2192 `, make("small", { textContent: flip.result }));
    button.addEventListener("click", () => change(flip.key, flip.value));
    return button;
  }));
}

async function copy(button, content) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(content);
  } catch {
    const area = make("textarea", { value: content });
    document.body.append(area);
    area.select();
    copied = document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = copied ? "copied" : "could not copy";
  setTimeout(() => { button.textContent = before; }, 1200);
}

let running = false;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function run() {
  running = true;
  byId("run").disabled = true;
  byId("run-section").hidden = false;
  byId("run-result").replaceChildren();
  try {
    const headers = { "Content-Type": "application/json", "X-Npu-Sim-Token": document.querySelector("meta[name=token]").content };
    const reply = await fetch("api/run", { method: "POST", headers, body: JSON.stringify(state) });
    const number = reply.ok ? (await reply.json()).number : null;
    if (number === null) showRun({ outcome: "failed", text: await reply.text() });
    while (number !== null) {
      const job = await (await fetch(`api/run?number=${number}`)).json();
      byId("progress").value = Math.max(job.stages ? job.stages.indexOf(job.stage) + 1 : 0, 0);
      byId("stage").textContent = `${job.stage}, ${(job.elapsed || 0).toFixed(1)} s`;
      if (job.stage === "done") {
        showRun(job.answer);
        break;
      }
      await pause(150);
    }
  } catch (error) {
    showRun({ outcome: "failed", text: "the explorer does not answer: is npu-sim explore still running?" });
  }
  running = false;
  byId("run").disabled = answer === null || !answer.plan;
}

function showRun(result) {
  const target = byId("run-result");
  if (result.outcome !== "ran") {
    target.replaceChildren(make("pre", { className: "bad", textContent: result.text }));
    return;
  }
  target.innerHTML = result.lines + result.pictures.join("");
}

async function begin() {
  catalog = await (await fetch("api/catalog")).json();
  const load = () => { readAddress(); build(); ask(); };
  load();
  window.addEventListener("hashchange", load);
  byId("form").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => { state = defaults(operatorOf(), productOf()); build(); writeAddress(); ask(); });
  byId("copy-cli").addEventListener("click", (event) => copy(event.currentTarget, answer.cli));
  byId("copy-python").addEventListener("click", (event) => copy(event.currentTarget, answer.python));
  byId("run").addEventListener("click", run);
}

begin();
