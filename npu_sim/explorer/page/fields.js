// The fields of the form, and those of the second pane: each one changes one value of the state.
import { OTHER, WHERE, isCompared, operatorOf, productOf, session } from "./address.js";
import { byId, make } from "./elements.js";
import { t } from "./texts.js";

let change = null; // (name, value, typedIn) of the page
let numbers = {}; // what the server read from the texts of sizes

export function listen(callback) {
  change = callback;
}

function field(name, title, help, ...inputs) {
  const id = `field-${name}`;
  const parts = [make("label", { textContent: title, htmlFor: id }), ...inputs];
  if (help) {
    parts.push(make("small", { id: `help-${name}`, className: "help", textContent: help }));
    inputs[0].setAttribute("aria-describedby", `help-${name} problem-${name}`);
  }
  parts.push(make("small", { id: `problem-${name}`, className: "problem", hidden: true }));
  return make("div", { className: "field" }, ...parts);
}

function choice(name, values, titles = values) {
  const chosen = session.state[name];
  const options = values.map((value, index) => make("option", { value, textContent: titles[index] }));
  const select = make("select", { id: `field-${name}`, name }, ...options);
  if (!values.includes(chosen)) select.append(make("option", { value: chosen, textContent: chosen }));
  select.value = chosen;
  select.addEventListener("change", () => change(name, select.value));
  return select;
}

function checkbox(name) {
  const box = make("input", { type: "checkbox", id: `field-${name}`, name, checked: session.state[name] === "true" });
  box.addEventListener("change", () => change(name, String(box.checked)));
  return box;
}

function text(name, placeholder) {
  const input = make("input", { type: "text", id: `field-${name}`, name, value: session.state[name] || "", placeholder, spellcheck: false });
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
  const input = make("input", { type: "text", inputMode: "numeric", id: `field-${axis.name}`, name: axis.name, value: session.state[axis.name], required: true });
  const range = make("input", { type: "range", min: 0, max: STEPS, id: `slider-${axis.name}` });
  range.setAttribute("aria-label", t("{name}, slider", { name: axis.name }));
  input.addEventListener("input", () => change(axis.name, input.value.trim(), input));
  input.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const now = /^-?[0-9]+$/.test(input.value) ? Number(input.value) : numbers[axis.name];
    if (!step || !Number.isSafeInteger(now)) return;
    event.preventDefault();
    input.value = Math.max(axis.low, now + step);
    input.dispatchEvent(new Event("input"));
  });
  range.addEventListener("input", () => {
    input.value = slider.value(axis, Number(range.value));
    change(axis.name, input.value, range);
  });
  return [input, range];
}

function axisField(axis) {
  if (axis.kind === "word") return field(axis.name, axis.name, axis.help, choice(axis.name, axis.words));
  if (axis.kind === "switch") return field(axis.name, axis.name, axis.help, checkbox(axis.name));
  return field(axis.name, axis.name, axis.help, ...size(axis));
}

function attributeField(attribute) {
  const isSwitch = attribute.default === "true" || attribute.default === "false";
  const placeholder = attribute.default === "" ? t("left out") : t("left out: {value}", { value: attribute.default });
  return field(attribute.name, attribute.name, attribute.help, isSwitch ? checkbox(attribute.name) : text(attribute.name, placeholder));
}

function whereFields(prefix) {
  const { products, releases } = session.catalog;
  const product = productOf(session.state[prefix + "product"]);
  return [
    field(prefix + "product", t("product"), "", choice(prefix + "product", products.map((one) => one.name), products.map((one) => `${one.title} (${one.name})`))),
    field(prefix + "soc", t("SoC"), "", choice(prefix + "soc", product ? product.socs : [])),
    field(prefix + "release", t("release"), t("release of the product's software"), choice(prefix + "release", releases)),
    field(prefix + "deterministic", t("deterministic"), t("the switch of deterministic computation"), checkbox(prefix + "deterministic")),
    field(prefix + "limits", t("limits"), t("documented: limits of the product documents; hardware: limits of the buffers"), choice(prefix + "limits", ["documented", "hardware"])),
  ];
}

function languageField() {
  const { languages, language } = session.catalog;
  session.state.lang = session.state.lang in languages ? session.state.lang : language;
  const select = choice("lang", Object.keys(languages), Object.values(languages));
  return field("lang", t("language"), "", select);
}

export function build(other) {
  const operator = operatorOf();
  const { operators } = session.catalog;
  byId("where").replaceChildren(
    languageField(),
    field("operator", t("operator"), "", choice("operator", operators.map((one) => one.name), operators.map((one) => one.title))),
    ...whereFields(""),
  );
  byId("axes").replaceChildren(...operator.axes.map(axisField));
  byId("attributes").replaceChildren(...operator.attributes.map(attributeField));
  byId("attributes").parentElement.hidden = operator.attributes.length === 0;
  byId("tensors").replaceChildren(...operator.tensors.map((one) => field(one.name, one.name, one.help, text(one.name, t("as implied")))));
  other?.replaceChildren(...(isCompared() ? whereFields(OTHER) : []));
  showNumbers(numbers);
}

// Sliders stand at what the server read.
export function showNumbers(read) {
  numbers = read;
  for (const axis of operatorOf().axes) {
    const range = byId(`slider-${axis.name}`);
    if (range && range !== document.activeElement && axis.name in read) range.value = slider.position(axis, read[axis.name]);
  }
}

// A refusal stands at its field as well.
export function showProblem(prefix, error) {
  const place = error?.argument === "profile" ? "product" : error?.argument;
  const { axes, attributes, tensors } = operatorOf();
  const fields = prefix === "" ? [...axes, ...attributes, ...tensors].map((one) => one.name) : [];
  for (const name of [...WHERE.map((one) => prefix + one), ...fields]) {
    const [input, problem] = [byId(`field-${name}`), byId(`problem-${name}`)];
    if (!input || !problem) continue;
    const isHere = name === prefix + place;
    if (isHere) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    problem.hidden = !isHere;
    problem.textContent = isHere ? error.message : "";
  }
}

// Tensors that are left out show what the sizes imply.
export function showImplied(tensors) {
  for (const [name, spec] of Object.entries(tensors)) {
    const input = byId(`field-${name}`);
    if (input && input.type === "text" && !session.state[name]) input.placeholder = spec;
  }
}
