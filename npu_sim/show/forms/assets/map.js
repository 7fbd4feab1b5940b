"use strict";
// drawMap(element, data): a sweep of two sizes, coloured by path, cores, workspace or bound; data is what npu_sim.sweeps.maps.sweep_map returns. Lists choose the device and the values of the other axes.
const drawMap = (() => {
  const { html, svg, titled, countText, table, whenWide, ticks, t } = pictures;
  const LEFT = 64, BOTTOM = 40, HEIGHT = 340, ROW = 18, COLOURS = 8;
  const KINDS = { path: "path", cores: "cores that work", workspace_bytes: "workspace, bytes", bound_us: "lower bound, us" };

  // Where a value is drawn: from `from` to `to`, logarithmic or not.
  function scaleOf(axis, from, to) {
    const turn = axis.logarithmic ? Math.log : (value) => value;
    const low = turn(axis.first), high = turn(axis.end);
    return (value) => from + ((turn(Math.min(Math.max(value, axis.first), axis.end)) - low) / (high - low)) * (to - from);
  }
  function ticksOf(axis) {
    if (!axis.logarithmic) return ticks(axis.first, axis.last, 5, 1);
    const found = [];
    for (let power = 1; power <= axis.last; power *= 10) if (power >= axis.first) found.push(power);
    return found.length > 1 ? found : [axis.first, axis.last];
  }

  const labelOf = (state) => (state.refused ? t("refused: {what}", { what: state.label }) : state.label);

  // Everything that identifies a map among those of a sweep, by name.
  const placeOf = (map) => Object.fromEntries(Object.entries({ product: map.product, SoC: map.soc, release: map.release, ...map.with }).map(([key, value]) => [key, String(value)]));

  return function drawMap(element, first) {
    const name = `map-${Math.random().toString(36).slice(2)}`;
    const maps = [first, ...(first.others ?? [])], places = maps.map(placeOf);
    const options = Object.keys(places[0]).map((key) => [key, [...new Set(places.map((place) => place[key]))]]);
    // A product has SoCs of its own: its list shows a combination that exists.
    const varied = options.filter(([, values]) => values.length > 1);
    const lists = varied.map(([key, values]) => html("select", { "data-axis": key }, ...values.sort((one, other) => one.localeCompare(other, undefined, { numeric: true })).map((value) => html("option", { value, selected: value === places[0][key] }, value))));
    const select = html("select", { "aria-label": t("coloured by") });
    const stage = html("div", { class: "stage plain" }), legend = html("ul", { class: "legend" }), about = html("p", { class: "caption" }), numbers = html("div");
    // One colour for a path on all maps.
    const colours = new Map();
    for (const state of maps.flatMap((map) => map.states)) if (!state.refused && !colours.has(state.label)) colours.set(state.label, colours.size % COLOURS);
    const colourOf = (number) => colours.get(data.states[number].label);
    let width = 0, data = first;
    // Bounds that cover different work are maps of their own.
    const named = (kind) => [t(KINDS[kind.replace(/\d+$/, "")]), data.cells[kind]?.coverage].filter(Boolean).join(", ");

    function redraw() {
      if (!width) return;
      const top = ROW * data.limits.length + 6, high = top + HEIGHT;
      const x = scaleOf(data.x, LEFT, width - 4), y = scaleOf(data.y, high, top), kind = select.value;
      const picture = svg("svg", { class: "area", width, height: high + BOTTOM, viewBox: `0 0 ${width} ${high + BOTTOM}`, role: "img", "aria-label": t("{x} and {y} by {kind}; the table below has the same data", { x: data.x.name, y: data.y.name, kind: named(kind) }) });
      picture.append(svg("defs", {}, svg("pattern", { id: name, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { width: 7, height: 7, class: "hatch-ground" }), svg("line", { x1: 0, x2: 0, y1: 0, y2: 7, class: "hatch" }))));
      const place = (start, end, low, top_, attributes, text) => titled(text, svg("rect", { x: x(start), width: Math.max(x(end) - x(start), 0.5), y: y(top_), height: Math.max(y(low) - y(top_), 0.5), ...attributes }));
      const found = data.cells[kind];
      if (found) cells(picture, place, found, kind);
      for (const column of data.columns) {
        for (const [start, end, last, state] of column.runs) {
          const { label, refused } = data.states[state];
          if (found && !refused) continue;
          const text = t("{x} from {start} to below {end}, {y}: {what}", { x: data.x.name, start: column.start, end: column.end, y: `${data.y.name} ${start}..${last}`, what: refused ? t("refused, {what}", { what: label }) : label });
          const looks = refused ? { fill: `url(#${name})`, class: "refused" } : { class: `state c${colourOf(state)}` };
          picture.append(place(column.start, column.end, start, end, { ...looks, "data-column": `${column.start} ${column.end}`, "data-run": `${start} ${end}`, "data-state": state }, text));
        }
      }
      picture.append(svg("path", { d: borders(x, y), class: "border" }));
      axes(picture, x, y, high, top);
      data.limits.forEach((limit, row) => limitMark(picture, limit, row, x, y, top, high));
      stage.replaceChildren(picture);
      legend.replaceChildren(...(found ? scaleLegend(found, kind) : []), ...data.states.map((state, number) => ({ state, number })).filter(({ state }) => !found || state.refused).map(stateLegend));
    }
    function cells(picture, place, found, kind) {
      const all = found.values.flat().filter((value) => value !== null), low = Math.min(...all), high = Math.max(...all);
      found.values.forEach((column, i) => column.forEach((value, j) => {
        if (value === null) return;
        const share = high > low ? (value - low) / (high - low) : 1;
        const text = `${data.x.name} ${found.x[i]}, ${data.y.name} ${found.y[j]}: ${value} ${named(kind)}`;
        picture.append(place(found.x[i], found.x[i + 1], found.y[j], found.y[j + 1], { class: "shade", "fill-opacity": (0.08 + 0.92 * share).toFixed(3), "data-value": value }, text));
      }));
    }
    // Lines between different states: above every run, and where neighbouring columns differ.
    function borders(x, y) {
      const parts = [];
      data.columns.forEach((column, place) => {
        for (const [start] of column.runs.slice(1)) parts.push(`M${x(column.start).toFixed(2)} ${y(start).toFixed(2)}H${x(column.end).toFixed(2)}`);
        const before = data.columns[place - 1];
        if (!before) return;
        for (const [start, end, , state] of column.runs) {
          for (const [low, high, , other] of before.runs) {
            const from = Math.max(start, low), to = Math.min(end, high);
            if (from < to && other !== state) parts.push(`M${x(column.start).toFixed(2)} ${y(from).toFixed(2)}V${y(to).toFixed(2)}`);
          }
        }
      });
      return parts.join("") || "M0 0";
    }
    function axes(picture, x, y, high, top) {
      const room = 7.4 * String(data.x.last).length + 4;
      for (const at of ticksOf(data.x).filter((at, number, all) => !number || x(at) - x(all[number - 1]) > room || number % 2 === 0)) picture.append(svg("text", { x: x(at), y: high + 15, class: "caption", "text-anchor": x(at) > width - 30 ? "end" : "middle" }, String(at)));
      for (const at of ticksOf(data.y)) picture.append(svg("text", { x: LEFT - 6, y: Math.max(y(at), top + 8) + 4, class: "caption", "text-anchor": "end" }, String(at)));
      picture.append(svg("text", { x: (LEFT + width) / 2, y: high + 34, class: "caption", "text-anchor": "middle" }, `${data.x.name} ${data.x.first}..${data.x.last}`));
      picture.append(svg("text", { x: 12, y: top + HEIGHT / 2, class: "caption", "text-anchor": "middle", transform: `rotate(-90 12 ${top + HEIGHT / 2})` }, `${data.y.name} ${data.y.first}..${data.y.last}`));
    }
    // Every limit has a row of its own above the map: a line where it lies in the map, an arrow where it lies beyond.
    function limitMark(picture, limit, row, x, y, top, high) {
      const axis = limit.axis === "x" ? data.x : data.y, inside = limit.value >= axis.first && limit.value < axis.end;
      const arrow = inside ? "" : limit.axis === "x" ? (limit.value >= axis.end ? " \u2192" : " \u2190") : limit.value >= axis.end ? " \u2191" : " \u2193";
      const beyond = limit.axis === "x" && !inside;
      const label = t("{limit} limit of {axis}: {value}", { limit: t(limit.name), axis: axis.name, value: countText(limit.value) });
      picture.append(svg("text", { x: beyond && limit.value >= axis.end ? width - 4 : LEFT, y: ROW * row + 13, class: "limit", "text-anchor": beyond && limit.value >= axis.end ? "end" : "start", "data-limit": `${limit.axis} ${limit.name} ${limit.value}` }, label + arrow));
      if (!inside) return;
      const after = limit.value + 0.5;
      const line = limit.axis === "x" ? { x1: x(after), x2: x(after), y1: top, y2: high } : { x1: LEFT, x2: width - 4, y1: y(after), y2: y(after) };
      picture.append(titled(label, svg("line", { ...line, class: "limit" })));
    }
    function stateLegend({ state, number }) {
      const mark = svg("svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", state.refused ? { width: 12, height: 12, fill: `url(#${name})`, class: "refused" } : { width: 12, height: 12, class: `c${colourOf(number)}` }));
      return html("li", {}, mark, ` ${labelOf(state)}`);
    }
    function scaleLegend(found, kind) {
      const all = found.values.flat().filter((value) => value !== null);
      return [html("li", {}, t("{kind}: from {low} (pale) to {high} (full), each cell one call at its lower left corner", { kind: named(kind), low: Math.min(...all), high: Math.max(...all) }))];
    }
    // Shows the map that the lists choose; where there is none, the nearest with what was changed last.
    function choose(changed) {
      const wanted = Object.fromEntries(lists.map((list) => [list.dataset.axis, list.value]));
      const score = (place) => varied.filter(([key]) => place[key] === wanted[key]).length + (changed && place[changed] !== wanted[changed] ? -varied.length : 0);
      const best = Math.max(...places.map(score)), number = places.findIndex((place) => score(place) === best);
      data = maps[number];
      for (const list of lists) list.value = places[number][list.dataset.axis];
      const kind = select.value;
      select.replaceChildren(...["path", ...Object.keys(data.cells)].map((each) => html("option", { value: each, selected: each === kind }, named(each))));
      about.textContent = t("{device}, with {fixed}", { device: `${data.product}, ${data.soc}`, fixed: Object.entries(data.with).map(([key, value]) => `${key} ${value}`).join(", ") });
      const rows = data.columns.flatMap((column) => column.runs.map(([start, , last, state]) => [t("{start} to below {end}", column), `${start}..${last}`, labelOf(data.states[state])]));
      numbers.replaceChildren(table(t("the map as a table"), [data.x.name, data.y.name, "path"], rows));
      redraw();
    }
    select.addEventListener("change", redraw);
    // What the lists choose is in the address of the page, and each choice an entry of the browser's history.
    for (const list of lists) list.addEventListener("change", () => {
      choose(list.dataset.axis);
      location.hash = new URLSearchParams(lists.map((each) => [each.dataset.axis, each.value]));
    });
    function readAddress() {
      const given = new URLSearchParams(location.hash.slice(1));
      for (const list of lists) list.value = given.get(list.dataset.axis) ?? places[0][list.dataset.axis];
      choose();
    }
    window.addEventListener("hashchange", readAddress);
    const labels = lists.map((list) => html("label", {}, `${t(list.dataset.axis)} `, list));
    element.replaceChildren(html("div", { class: "tools" }, ...labels, html("label", {}, t("coloured by"), " ", select)), about, stage, legend, numbers);
    readAddress();
    whenWide(stage, (wide) => { width = wide; redraw(); });
  };
})();
