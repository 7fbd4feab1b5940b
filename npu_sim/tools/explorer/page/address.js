// The page has one state, a flat map of texts, mirrored in the address bar after '#'. Names that begin with "other." are what the
// second pane has instead of the first one's values; there is a second pane if there are any.
export const OTHER = "other.";
export const WHERE = ["product", "soc", "release", "deterministic", "limits"];
export const session = { catalog: null, state: {} };

export const productOf = (name) => session.catalog.products.find((product) => product.name === name);
const defaultProduct = () => productOf("atlas_a2") || session.catalog.products[0];
export const productOfFirst = () => productOf(session.state.product) || defaultProduct();
export const isCompared = () => Object.keys(session.state).some((name) => name.startsWith(OTHER));
export const named = (name) => session.catalog.operators.find((operator) => operator.name === name) || session.catalog.operators[0];
export const operatorOf = (prefix = "") => named(session.state[prefix + "operator"] ?? session.state.operator);

export function defaults(operator, product) {
  const values = { operator: operator.name, product: product.name, soc: product.default_soc, release: session.catalog.default_release, deterministic: "false", limits: "documented" };
  for (const axis of operator.axes) values[axis.name] = axis.default;
  for (const attribute of operator.attributes) values[attribute.name] = attribute.default;
  return values;
}

// Return the values of a pane. A second pane with another operator takes only language and product from the first one.
export function stateOf(prefix) {
  const entries = Object.entries(session.state);
  const first = Object.fromEntries(entries.filter(([name]) => !name.startsWith(OTHER)));
  if (prefix === "") return first;
  const own = Object.fromEntries(entries.filter(([name]) => name.startsWith(OTHER)).map(([name, value]) => [name.slice(OTHER.length), value]));
  if (operatorOf(OTHER) === operatorOf()) return { ...first, ...own };
  return { lang: first.lang, ...defaults(operatorOf(OTHER), productOfFirst()), ...own };
}

// A product without a SoC has its default SoC; the server knows it if the link names the product in another way than the catalog.
export function readAddress() {
  lastTyped = null;
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const product = productOf(given.product) || defaultProduct();
  for (const prefix of ["", OTHER]) {
    if (given[prefix + "product"]) given[prefix + "soc"] ??= productOf(given[prefix + "product"])?.default_soc ?? "";
  }
  session.state = { ...defaults(named(given.operator), product), ...given };
}

// An empty attribute or tensor is one that is left out; an empty size is a size that is missing, which the server refuses. An empty
// SoC of the second pane replaces that of the first one.
const isWritten = (prefix) => ([name, value]) => value !== "" || name === "soc" || operatorOf(prefix).axes.some((axis) => axis.name === name);
const isInQuery = ([name, value]) => (name.startsWith(OTHER) ? isWritten(OTHER)([name.slice(OTHER.length), value]) : isWritten("")([name, value]));

// Return the whole state as a query, both panes in one.
export const wholeQuery = () => new URLSearchParams(Object.entries(session.state).filter(isInQuery));

let lastTyped = null; // the value that was typed or dragged last

// Every change is an entry of the browser's history, except that all keys typed one after the other into a field are one.
export function writeAddress(typed = null) {
  const address = `#${wholeQuery()}`;
  if (typed !== null && typed === lastTyped) history.replaceState(null, "", address);
  else if (address !== location.hash) history.pushState(null, "", address);
  lastTyped = typed;
}

// Return the state of a pane as a query.
export const queryOf = (prefix) => new URLSearchParams(Object.entries(stateOf(prefix)).filter(isWritten(prefix)));
