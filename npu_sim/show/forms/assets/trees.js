"use strict";
// drawTrees(element, data): summation trees, folded up; data has certificates as the JSON of the study has them.
// Terms that are added one after the other are one node, such as t0 .. t31. Everything inside is built when it is opened.
const drawTrees = (() => {
  const { html, t } = pictures;
  const size = (node) => (typeof node === "number" ? 1 : node === null ? 0 : node.fold.reduce((sum, part) => sum + size(part), 0));

  function lazily(summary, build, attributes = {}) {
    const made = html("details", attributes, html("summary", {}, summary));
    made.addEventListener("toggle", () => { if (made.open && made.children.length === 1) made.append(build()); });
    return made;
  }
  // Parts of a sum; neighbouring terms with following numbers are one part.
  function parts(fold) {
    const found = [];
    for (const part of fold) {
      const last = found[found.length - 1];
      if (typeof part === "number" && last && last.run && last.stop === part) last.stop += 1;
      else found.push(typeof part === "number" ? { run: true, start: part, stop: part + 1 } : { node: part });
    }
    return found;
  }
  function branch(node, terms) {
    if (typeof node === "number") return html("span", { class: "term" }, `t${node} = ${terms[node]}`);
    const inner = parts(node.fold), count = size(node);
    const summary = t(inner.length === 1 ? "sum of {count} terms, from the left" : "sum of {parts} parts, {count} terms, from the left", { parts: inner.length, count });
    return lazily(summary, () => html("ul", { class: "tree" }, ...inner.map((part) => html("li", {}, part.run ? run(part, terms) : branch(part.node, terms)))), { "data-terms": count });
  }
  function run({ start, stop }, terms) {
    if (stop === start + 1) return html("span", { class: "term" }, `t${start} = ${terms[start]}`);
    const names = () => html("ul", { class: "tree" }, ...terms.slice(start, stop).map((name, place) => html("li", { class: "term" }, `t${start + place} = ${name}`)));
    return lazily(t("{terms}, one after the other", { terms: `t${start} .. t${stop - 1}` }), names, { "data-run": `${start} ${stop}` });
  }
  // The whole tree as a formula; a left fold has no brackets.
  function formula(node) {
    if (node === null) return "0";
    if (typeof node === "number") return `t${node}`;
    return node.fold.map((part, position) => (position && part && part.fold ? `(${formula(part)})` : formula(part))).join(" + ");
  }
  return function drawTrees(element, data) {
    const probed = (certificate) => (certificate.probe_agrees === null ? t("not probed") : t(certificate.probe_agrees ? "the kernel agrees ({probe})" : "THE KERNEL DISAGREES ({probe})", certificate));
    const all = data.certificates.map((certificate) => {
      const element = `${certificate.output}[${certificate.element.join(", ")}]`;
      const head = t("{element}, {count} elements alike, {terms} terms; {probed}; {hash}", { element, count: certificate.elements_alike, terms: certificate.terms.length, probed: probed(certificate), hash: certificate.hash });
      const inside = () => {
        const root = branch(certificate.tree, certificate.terms);
        if (root.tagName === "DETAILS") root.open = true;
        return html("div", {}, root, lazily(t("full text"), () => html("pre", { class: "call" }, formula(certificate.tree)), { class: "full" }));
      };
      return lazily(head, inside, { class: "certificate" });
    });
    element.replaceChildren(...all);
  };
})();
