"use strict";
// drawTrees(element, data): summation trees, folded up; data has certificates as the JSON of the study has them.
// Terms that are added one after the other are one node, such as t0 .. t31. Everything inside is built when it is opened.
const drawTrees = (() => {
  const { html } = pictures;
  const size = (node) => (typeof node === "number" ? 1 : node === null ? 0 : node.fold.reduce((sum, one) => sum + size(one), 0));

  function lazily(summary, build, attributes = {}) {
    const made = html("details", attributes, html("summary", {}, summary));
    made.addEventListener("toggle", () => { if (made.open && made.children.length === 1) made.append(build()); });
    return made;
  }
  // Parts of a sum; neighbouring terms with following numbers are one part.
  function parts(fold) {
    const found = [];
    for (const one of fold) {
      const last = found[found.length - 1];
      if (typeof one === "number" && last && last.run && last.stop === one) last.stop += 1;
      else found.push(typeof one === "number" ? { run: true, start: one, stop: one + 1 } : { node: one });
    }
    return found;
  }
  function branch(node, terms) {
    if (typeof node === "number") return html("span", { class: "term" }, `t${node} = ${terms[node]}`);
    const inner = parts(node.fold), count = size(node);
    return lazily(`sum of ${inner.length === 1 ? `${count} terms` : `${inner.length} parts, ${count} terms`}, from the left`, () => html("ul", { class: "tree" }, ...inner.map((one) => html("li", {}, one.run ? run(one, terms) : branch(one.node, terms)))), { "data-terms": count });
  }
  function run({ start, stop }, terms) {
    if (stop === start + 1) return html("span", { class: "term" }, `t${start} = ${terms[start]}`);
    const names = () => html("ul", { class: "tree" }, ...terms.slice(start, stop).map((name, place) => html("li", { class: "term" }, `t${start + place} = ${name}`)));
    return lazily(`t${start} .. t${stop - 1}, one after the other`, names, { "data-run": `${start} ${stop}` });
  }
  // The whole tree as a formula; a left fold has no brackets.
  function formula(node) {
    if (node === null) return "0";
    if (typeof node === "number") return `t${node}`;
    return node.fold.map((one, place) => (place && one && one.fold ? `(${formula(one)})` : formula(one))).join(" + ");
  }
  return function drawTrees(element, data) {
    const probed = (one) => (one.probe_agrees === null ? "not probed" : `${one.probe_agrees ? "the kernel agrees" : "THE KERNEL DISAGREES"} (${one.probe})`);
    const all = data.certificates.map((one) => {
      const head = `${one.output}[${one.element.join(", ")}], ${one.elements_alike} elements alike, ${one.terms.length} terms; ${probed(one)}; ${one.hash}`;
      const inside = () => {
        const root = branch(one.tree, one.terms);
        if (root.tagName === "DETAILS") root.open = true;
        return html("div", {}, root, lazily("full text", () => html("pre", { class: "call" }, formula(one.tree)), { class: "full" }));
      };
      return lazily(head, inside, { class: "certificate" });
    });
    element.replaceChildren(...all);
  };
})();
