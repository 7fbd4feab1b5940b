"use strict";
// drawSteps(element, data): one core, tile by tile. data is what npu_sim.timelines.steps.steps returns.
const drawSteps = (() => {
  const { html, svg, titled, button, countText, table, whenWide, t } = pictures;
  const COLOURS = 8, MAP_HEIGHT = 92, BAR = 36, THINNEST = 2, STRIP = 5, GAP = 3, ALL = -1;
  const FRAME = 150, MOST_FRAMES = 200; // milliseconds between the steps of a play, and the number of steps at most

  const count = (nodes) => nodes.reduce((sum, node) => sum + (typeof node === "number" ? 1 : node[3] * node[4]), 0);
  // Tile number n of a program: the number of its kind, and for every axis where it stands and how long it is.
  function find(nodes, n, axes) {
    for (const node of nodes) {
      if (typeof node === "number") {
        if (n === 0) return { kind: node, axes };
        n -= 1;
        continue;
      }
      const [axis, start, step, times, inside, body] = node;
      if (n < times * inside) {
        const turn = Math.floor(n / inside);
        return find(body, n - turn * inside, axis ? { ...axes, [axis]: { start: start + turn * step, length: step } } : axes);
      }
      n -= times * inside;
    }
    return null;
  }
  // Where a tile stands along one side of a tensor: the first axis counts from the start of the tensor, the others from there.
  function extent(walk, size, axes, own) {
    let start = 0, length = null;
    for (const [axis, factor] of walk) {
      if (axes[axis]) {
        start += Math.round(factor * axes[axis].start);
        length = Math.round(factor * axes[axis].length);
      }
    }
    const [axis, factor] = walk.find(([name]) => own[name]) || [];
    if (length === null && axis) {
      start = Math.round(factor * own[axis][0]);
      length = Math.round(factor * (own[axis][1] - own[axis][0]));
    }
    return length === null ? { start: 0, length: size } : { start, length: Math.min(length, size - start) };
  }
  const noteOf = (phase, tile) => [phase.name, tile.note].filter((text, position, all) => text && all.indexOf(text) === position).join(": ");
  const range = (span) => `${span.start}..${span.start + span.length}`;

  function viewCard(view, axes, own, role, chosen) {
    const rows = extent(view.by_row, view.rows, axes, own), columns = extent(view.by_column, view.columns, axes, own);
    const share = { rows: extent(view.by_row, view.rows, {}, own), columns: extent(view.by_column, view.columns, {}, own) };
    const where = chosen ? t("rows that the data decides") : t("rows {rows}", { rows: range(rows) });
    const text = role ? t("{role}: {where}, columns {columns}", { role: t(role), where, columns: range(columns) }) : t("unaffected");
    // To the left where the frame lies in all rows, to the right the frame: what the core has, or everything.
    const inside = (span, other) => span.start >= other.start && span.start + span.length <= other.start + other.length;
    const whole = { rows: { start: 0, length: view.rows }, columns: { start: 0, length: view.columns } };
    const frame = chosen || !inside(rows, share.rows) || !inside(columns, share.columns) ? whole : share;
    const picture = svg("svg", { viewBox: `0 0 100 ${MAP_HEIGHT}`, preserveAspectRatio: "none", class: "tensor", role: "img", "aria-label": `${view.name}, ${text}` });
    const strip = (span, kind, title) => {
      const height = Math.max((span.length / Math.max(view.rows, 1)) * MAP_HEIGHT, THINNEST), y = Math.min((span.start / Math.max(view.rows, 1)) * MAP_HEIGHT, MAP_HEIGHT - height);
      return titled(title, svg("rect", { x: 0, y, width: STRIP, height, class: kind }));
    };
    const box = (y, x, kind) => {
      const room = 100 - STRIP - GAP, down = MAP_HEIGHT / Math.max(frame.rows.length, 1), across = room / Math.max(frame.columns.length, 1);
      const height = Math.max(y.length * down, THINNEST), width = Math.max(x.length * across, THINNEST / 2);
      const top = Math.min((y.start - frame.rows.start) * down, MAP_HEIGHT - height), left = Math.min((x.start - frame.columns.start) * across, room - width);
      return svg("rect", { x: STRIP + GAP + left, y: top, width, height, class: kind, "data-rows": range(y), "data-columns": range(x) });
    };
    picture.append(strip(whole.rows, "tensor-all", t("rows {rows}", { rows: `0..${view.rows}` })), strip(frame.rows, "tensor-share", t("rows {rows} of {all}", { rows: range(frame.rows), all: view.rows })));
    picture.append(box(frame.rows, frame.columns, "tensor-all"));
    if (role) picture.append(titled(text, box(chosen ? frame.rows : rows, columns, chosen ? "tensor-gathered" : `tensor-${role}`)));
    const size = view.columns === 1 && !view.by_column.length ? `${view.rows}` : `${view.rows} x ${view.columns}`;
    return html("figure", { class: role ? "view" : "view quiet", "data-view": view.name }, html("figcaption", {}, html("b", {}, view.name), ` ${size}`), picture, html("p", { class: "caption" }, text));
  }

  // Parts of a tensor that all cores have at the same tile number; `places` are [core, tile, axes, own].
  function sharedCard(view, places) {
    const picture = svg("svg", { viewBox: `0 0 100 ${MAP_HEIGHT}`, preserveAspectRatio: "none", class: "tensor", role: "img", "aria-label": view.name });
    picture.append(svg("rect", { x: 0, y: 0, width: 100, height: MAP_HEIGHT, class: "tensor-all" }));
    let count = 0;
    for (const [core, tile, axes, own] of places) {
      const role = roleOf(view, tile);
      if (!role) continue;
      count += 1;
      if (tile.by_data.includes(view.name)) continue;
      const rows = extent(view.by_row, view.rows, axes, own), columns = extent(view.by_column, view.columns, axes, own);
      const down = MAP_HEIGHT / Math.max(view.rows, 1), across = 100 / Math.max(view.columns, 1);
      const box = { x: columns.start * across, y: rows.start * down, width: columns.length * across, height: Math.max(rows.length * down, THINNEST / 2) };
      picture.append(titled(t("core {core}: rows {rows}, columns {columns}", { core, rows: range(rows), columns: range(columns) }), svg("rect", { ...box, class: `tensor-${role}`, "data-core": core })));
    }
    return html("figure", { class: count ? "view" : "view quiet", "data-view": view.name }, html("figcaption", {}, html("b", {}, view.name)), picture, html("p", { class: "caption" }, t("{count} cores at this tile", { count })));
  }
  const roleOf = (view, tile) => (tile.writes.includes(view.name) ? "written" : tile.reads.includes(view.name) ? "read" : tile.holds.includes(view.name) ? "held" : "");

  function memoryBar(memory, live, width) {
    const whole = Math.max(memory.capacity_bytes, memory.used_bytes, 1);
    const sizes = (name) => t("{name}: {used} of {capacity} bytes", { name, used: memory.used_bytes, capacity: memory.capacity_bytes });
    const picture = svg("svg", { width, height: BAR, viewBox: `0 0 ${width} ${BAR}`, role: "img", "aria-label": sizes(memory.name) });
    let x = 0;
    const legend = html("ul", { class: "legend" });
    memory.allocations.forEach((allocation, position) => {
      const wide = (allocation.bytes / whole) * width, on = live.includes(allocation.name), colour = `c${position % COLOURS}`;
      const label = `${allocation.name} ${allocation.bytes}`;
      const text = t(on ? "{name}: {bytes} bytes, live" : "{name}: {bytes} bytes, not in use now", allocation);
      picture.append(titled(text, svg("rect", { x, y: 0, width: Math.max(wide, 0.5), height: BAR, class: on ? colour : `${colour} asleep`, "data-segment": allocation.name, "data-live": String(on) })));
      const mark = svg("svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, class: on ? colour : `${colour} asleep` }));
      legend.append(html("li", on ? {} : { class: "quiet" }, mark, on ? ` ${label}` : ` ${t("{name}, not in use now", { name: label })}`));
      x += wide;
    });
    if (memory.free_bytes > 0) {
      picture.append(titled(t("free: {bytes} bytes", { bytes: memory.free_bytes }), svg("rect", { x, y: 0, width: (memory.free_bytes / whole) * width, height: BAR, class: "free" })));
      legend.append(html("li", { class: "quiet" }, t("free {bytes}", { bytes: memory.free_bytes })));
    }
    const phase = memory.phase ? `, ${memory.phase}` : "";
    return html("div", { class: "memory" }, html("p", { class: "caption" }, sizes(memory.name + phase)), picture, legend);
  }

  // A click on a core of a picture chooses it in the nearest steps of a core.
  document.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-cell]");
    let around = cell;
    while (around && !around.querySelector(".core-choice")) around = around.parentElement;
    const made = around && [...around.querySelectorAll(".core-choice button")].find((button) => button.textContent === cell.dataset.cell);
    if (made) made.click();
  });

  return function drawSteps(element, data) {
    const cores = [...new Set(data.phases.flatMap((phase) => Object.keys(phase.of_core)))].map(Number).sort((a, b) => a - b);
    if (!cores.length) {
      element.replaceChildren(html("p", {}, t("No core works on tiles.")));
      return;
    }
    let core = cores[0], at = 0, width = 0;
    const parts = (number) => data.phases.map((phase) => ({ phase, nodes: phase.programs[phase.of_core[number]] || [] })).map((part) => ({ ...part, tiles: count(part.nodes) }));
    const total = (number) => parts(number).reduce((sum, part) => sum + part.tiles, 0);
    // Tile number n of a core, in its phase; null if the core has fewer.
    function tileOf(number, n) {
      for (const { phase, nodes, tiles } of parts(number)) {
        if (n < tiles) return { phase, ...find(nodes, n, {}) };
        n -= tiles;
      }
      return null;
    }
    const slider = html("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": t("tile") });
    const told = html("output", { class: "told", "aria-live": "polite" });
    const views = html("div", { class: "views" }), memories = html("div"), work = html("p", { class: "caption" });
    const choices = html("div", { class: "core-choice", role: "group", "aria-label": t("core") });
    const buttons = new Map(cores.map((number) => [number, button(String(number), t("core {number}", { number }), () => choose(number))]));
    buttons.set(ALL, button(t("all"), t("all cores"), () => choose(ALL)));
    choices.append(...buttons.values());

    function choose(number) {
      core = number;
      for (const [number, made] of buttons) made.setAttribute("aria-pressed", String(number === core));
      slider.max = Math.max(number === ALL ? Math.max(...cores.map(total)) - 1 : total(number) - 1, 0);
      go(at);
    }
    function go(n) {
      at = Math.min(Math.max(Math.round(n), 0), Number(slider.max));
      slider.value = at;
      redraw();
    }
    function redraw() {
      if (!width) return;
      if (core === ALL) {
        redrawAll();
        return;
      }
      const found = tileOf(core, at);
      if (!found) return;
      const { phase } = found;
      const tile = data.tiles[found.kind], own = data.cores[core] || {};
      const places = Object.entries(found.axes).map(([axis, span]) => `${axis} ${range(span)}`).join(", ");
      const says = tile.says.replace(/\{([^}]+)\}/g, (_, axis) => (found.axes[axis] ? range(found.axes[axis]) : own[axis] ? `${own[axis][0]}..${own[axis][1]}` : t("all")));
      const rest = [noteOf(phase, tile), places].filter(Boolean).join(", ");
      const place = t("core {core}, tile {tile} of {tiles}, {rest}", { core, tile: at + 1, tiles: Number(slider.max) + 1, rest });
      slider.setAttribute("aria-valuetext", place);
      told.replaceChildren(html("span", { class: "caption" }, place), html("strong", {}, says));
      views.replaceChildren(...data.views.map((view) => viewCard(view, found.axes, own, roleOf(view, tile), tile.by_data.includes(view.name))));
      memories.replaceChildren(...phase.memories.map((number) => memoryBar(data.memories[number], tile.live, width)));
      const pipes = Object.entries(tile.work).map(([pipe, amount]) => `${pipe} ${amount.bytes ? t("{bytes} bytes", { bytes: countText(amount.bytes) }) : t("{elements} elements", { elements: countText(amount.elements) })}`);
      work.textContent = pipes.length ? t("pipes: {pipes}", { pipes: pipes.join(", ") }) : "";
    }
    function redrawAll() {
      const found = cores.map((number) => [number, tileOf(number, at)]).filter(([, tile]) => tile);
      const places = found.map(([number, tile]) => [number, data.tiles[tile.kind], tile.axes, data.cores[number] || {}]);
      const place = t("all cores, tile {tile} of {tiles}: {count} cores work", { tile: at + 1, tiles: Number(slider.max) + 1, count: found.length });
      slider.setAttribute("aria-valuetext", place);
      const notes = new Set(found.map(([, tile]) => noteOf(tile.phase, data.tiles[tile.kind])));
      told.replaceChildren(html("span", { class: "caption" }, place), html("strong", {}, [...notes].join("; ")));
      views.replaceChildren(...data.views.map((view) => sharedCard(view, places)));
      memories.replaceChildren();
      work.textContent = "";
    }
    // Play from where the slider stands, from the start at the end; long programs in larger steps.
    let timer = null;
    function pause() {
      clearInterval(timer);
      timer = null;
      play.textContent = t("play");
    }
    const play = button(t("play"), t("play the tiles"), () => {
      if (timer !== null) return pause();
      if (at === Number(slider.max)) go(0);
      play.textContent = t("pause");
      timer = setInterval(() => {
        go(at + Math.ceil(Number(slider.max) / MOST_FRAMES));
        if (at === Number(slider.max) || !slider.isConnected) pause();
      }, FRAME);
    });
    slider.addEventListener("input", () => { pause(); go(Number(slider.value)); });
    const tools = html("div", { class: "tools" }, play, button(t("first"), t("first tile"), () => go(0)), button("\u2190", t("tile before"), () => go(at - 1)), slider, button("\u2192", t("next tile"), () => go(at + 1)), button(t("last"), t("last tile"), () => go(Number(slider.max))));
    const why = data.why.length ? [html("p", { class: "caption" }, data.why.join("; "))] : [];
    const ranges = Object.entries(data.cores).map(([number, own]) => [Number(number), Object.entries(own).map(([name, ends]) => `${name} ${ends[0]}..${ends[1]}`).join(", ")]);
    element.replaceChildren(...why, choices, tools, told, views, memories, work, table(t("what every core has, as a table"), ["core", "ranges"], ranges));
    whenWide(element, (wide) => { width = wide; redraw(); });
    choose(core);
  };
})();
