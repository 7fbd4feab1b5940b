// The fields of the calls, one group for each pane: each field changes one value of the state.
import { OTHER, WHERE, operatorOf, productOf, session, stateOf } from "./address.js";
import { byId, make } from "./elements.js";
import { t, translate } from "./texts.js";

let change = null; // (name, value, typedIn) of the page
const numbers = { "": {}, [OTHER]: {} }; // what the server read from the texts of sizes, by pane
const groups = {}; // elements of the calls, by pane

export function listen(callback) {
  change = callback;
}

// `key` is the name of a value in the state: that of an argument, after "other." for the second pane.
function field(key, title, help, ...inputs) {
  const id = `field-${key}`;
  const words = title.split(/(?<=_)/).flatMap((word) => [make("wbr"), word]); // long names break between their words
  const parts = [make("label", { htmlFor: id }, ...words), ...inputs];
  if (help) {
    parts.push(make("small", { id: `help-${key}`, className: "help", textContent: help }));
    inputs[0].setAttribute("aria-describedby", `help-${key} problem-${key}`);
  }
  parts.push(make("small", { id: `problem-${key}`, className: "problem", hidden: true }));
  return make("div", { className: "field" }, ...parts);
}

function choice(prefix, name, values, titles = values) {
  const chosen = valueOf(prefix, name);
  const options = values.map((value, index) => make("option", { value, textContent: titles[index] }));
  const select = make("select", { id: `field-${prefix}${name}`, name: prefix + name }, ...options);
  if (!values.includes(chosen)) select.append(make("option", { value: chosen, textContent: chosen }));
  select.value = chosen;
  select.addEventListener("change", () => change(prefix + name, select.value));
  return select;
}

function checkbox(prefix, name) {
  const box = make("input", { type: "checkbox", id: `field-${prefix}${name}`, name: prefix + name, checked: valueOf(prefix, name) === "true" });
  box.addEventListener("change", () => change(prefix + name, String(box.checked)));
  return box;
}

function text(prefix, name, placeholder) {
  const input = make("input", { type: "text", id: `field-${prefix}${name}`, name: prefix + name, value: valueOf(prefix, name), placeholder, spellcheck: false });
  input.addEventListener("input", () => change(prefix + name, input.value.trim(), input));
  return input;
}

const valueOf = (prefix, name) => stateOf(prefix)[name] ?? "";

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

function size(prefix, axis) {
  const key = prefix + axis.name;
  const input = make("input", { type: "text", inputMode: "numeric", id: `field-${key}`, name: key, value: valueOf(prefix, axis.name), required: true });
  const range = make("input", { type: "range", min: 0, max: STEPS, id: `slider-${key}` });
  range.setAttribute("aria-label", t("{name}, slider", { name: axis.name }));
  input.addEventListener("input", () => change(key, input.value.trim(), input));
  input.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const now = /^-?[0-9]+$/.test(input.value) ? Number(input.value) : numbers[prefix][axis.name];
    if (!step || !Number.isSafeInteger(now)) return;
    event.preventDefault();
    input.value = Math.max(axis.low, now + step);
    input.dispatchEvent(new Event("input"));
  });
  range.addEventListener("input", () => {
    input.value = slider.value(axis, Number(range.value));
    change(key, input.value, range);
  });
  return [input, range];
}

function axisField(prefix, axis) {
  const inputs = { word: () => [choice(prefix, axis.name, axis.words)], switch: () => [checkbox(prefix, axis.name)], number: () => size(prefix, axis) };
  return field(prefix + axis.name, axis.name, axis.help, ...inputs[axis.kind]());
}

function attributeField(prefix, attribute) {
  const isSwitch = attribute.default === "true" || attribute.default === "false";
  const placeholder = attribute.default === "" ? t("left out") : t("left out: {value}", { value: attribute.default });
  return field(prefix + attribute.name, attribute.name, attribute.help, isSwitch ? checkbox(prefix, attribute.name) : text(prefix, attribute.name, placeholder));
}

function whereFields(prefix) {
  const { operators, products, releases } = session.catalog;
  const product = productOf(valueOf(prefix, "product"));
  const select = (name, title, help, ...values) => field(prefix + name, title, help, choice(prefix, name, ...values));
  return [
    select("operator", t("operator"), "", operators.map((operator) => operator.name), operators.map((operator) => operator.title)),
    select("product", t("product"), "", products.map((product) => product.name), products.map((product) => `${product.title} (${product.name})`)),
    select("soc", t("SoC"), "", product ? product.socs : []),
    select("release", t("release"), t("release of the product's software"), releases),
    field(prefix + "deterministic", t("deterministic"), t("the switch of deterministic computation"), checkbox(prefix, "deterministic")),
    select("limits", t("limits"), t("documented: limits of the product documents; hardware: limits of the buffers"), ["documented", "hardware"]),
  ];
}

export function buildLanguage() {
  const { languages, language } = session.catalog;
  session.state.lang = session.state.lang in languages ? session.state.lang : language;
  byId("language").replaceChildren(field("lang", t("language"), "", choice("", "lang", Object.keys(languages), Object.values(languages))));
}

// Add the group of a pane's fields, folded up or not.
export function addCall(prefix, isOpen) {
  const group = byId("call").content.firstElementChild.cloneNode(true);
  groups[prefix] = group;
  translate(group);
  group.open = isOpen;
  group.querySelector(".reset").textContent = prefix === "" ? t("back to the defaults") : t("sizes of the first call");
  byId("calls").append(group);
  return group;
}

export function build(prefix) {
  const operator = operatorOf(prefix), group = groups[prefix];
  const put = (selector, fields) => group.querySelector(selector).replaceChildren(...fields);
  group.querySelector(".which").textContent = prefix === "" ? t("the call") : t("the second call");
  put(".where", whereFields(prefix));
  put(".axes", operator.axes.map((axis) => axisField(prefix, axis)));
  put(".attributes", operator.attributes.map((attribute) => attributeField(prefix, attribute)));
  group.querySelector(".attributes").parentElement.hidden = operator.attributes.length === 0;
  put(".tensors", operator.tensors.map((tensor) => field(prefix + tensor.name, tensor.name, tensor.help, text(prefix, tensor.name, t("as implied")))));
  showNumbers(prefix, numbers[prefix]);
}

// Sliders stand at what the server read.
export function showNumbers(prefix, read) {
  numbers[prefix] = read;
  for (const axis of operatorOf(prefix).axes) {
    const range = byId(`slider-${prefix}${axis.name}`);
    if (range && range !== document.activeElement && axis.name in read) range.value = slider.position(axis, read[axis.name]);
  }
}

// A refusal stands at its field as well.
export function showProblem(prefix, error) {
  const place = error?.argument === "profile" ? "product" : error?.argument;
  const { axes, attributes, tensors } = operatorOf(prefix);
  for (const name of ["operator", ...WHERE, ...[...axes, ...attributes, ...tensors].map((argument) => argument.name)]) {
    const [input, problem] = [byId(`field-${prefix}${name}`), byId(`problem-${prefix}${name}`)];
    if (!input || !problem) continue;
    const isHere = name === place;
    if (isHere) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    problem.hidden = !isHere;
    problem.textContent = isHere ? error.message : "";
  }
}

// Tensors that are left out show what the sizes imply.
export function showImplied(prefix, tensors) {
  for (const [name, spec] of Object.entries(tensors)) {
    const input = byId(`field-${prefix}${name}`);
    if (input && input.type === "text" && !valueOf(prefix, name)) input.placeholder = spec;
  }
}
