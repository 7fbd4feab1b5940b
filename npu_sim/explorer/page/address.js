// The page has one state, a flat map of texts, mirrored in the address bar after '#'. What begins with "other." is what the second
// pane has instead of the first one's, when there is one.
export const OTHER = "other.";
export const WHERE = ["product", "soc", "release", "deterministic", "limits"];
export const session = { catalog: null, state: {} };

export const operatorOf = (name = session.state.operator) => session.catalog.operators.find((one) => one.name === name) || session.catalog.operators[0];
export const productOf = (name) => session.catalog.products.find((one) => one.name === name);
export const isCompared = () => OTHER + "product" in session.state;

export function defaults(operator, product) {
  const values = { operator: operator.name, product: product.name, soc: product.default_soc, release: session.catalog.default_release, deterministic: "false", limits: "documented" };
  for (const axis of operator.axes) values[axis.name] = axis.default;
  for (const attribute of operator.attributes) values[attribute.name] = attribute.default;
  return values;
}

export function readAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const product = productOf(given.product) || productOf("atlas_a2") || session.catalog.products[0];
  session.state = { ...defaults(operatorOf(given.operator), product), ...given };
}

// An empty attribute or tensor is one that is left out; an empty size is a size that is missing, which the server refuses.
function said([name, value]) {
  return value !== "" || operatorOf().axes.some((axis) => axis.name === name);
}

export function writeAddress() {
  history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(session.state).filter(said)));
}

// Return the state of a pane as a query.
export function queryOf(prefix) {
  const { state } = session;
  const first = Object.entries(state).filter(([name]) => !name.startsWith(OTHER));
  const other = prefix === "" ? [] : Object.entries(state).filter(([name]) => name.startsWith(OTHER)).map(([name, value]) => [name.slice(OTHER.length), value]);
  return new URLSearchParams(Object.entries({ ...Object.fromEntries(first), ...Object.fromEntries(other) }).filter(said));
}

// Return the whole state as a query, both panes in one.
export const wholeQuery = () => new URLSearchParams(Object.entries(session.state).filter(said));
