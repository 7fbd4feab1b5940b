"use strict";
// drawGantt(element, data): the launches of a call over time, and what the pipes of its slowest core do.
// data is what npu_sim.timelines.tracks.tracks returns. A launch may have measured_us as well: it is then drawn beside its bound.
const drawGantt = (() => {
  const { html, svg, titled, button, countText, microseconds, table, whenWide, ticks, t } = pictures;
  const ROW = 26, BAR = 18, LEFT = 74, AXIS = 24, NARROWEST = 0.6, CHARACTER = 7.2;
  const COLOURS = { MTE2: "c0", V: "c1", MTE3: "c2", MTE1: "c4", M: "c1", FIXP: "c2" };

  function rowsOf(data) {
    const bound = data.launches.map((launch) => ({ name: launch.kernel, start: launch.start_us, us: launch.us, text: t("{kernel}: at least {time}, {share} % of the bound", { kernel: launch.kernel, time: microseconds(launch.us), share: (100 * launch.share).toFixed(1) }) }));
    const rows = [{ label: "launches", colour: "c5", named: true, events: bound }];
    if (data.launches.some((launch) => launch.measured_us)) {
      let start = 0;
      const measured = data.launches.map((launch) => {
        const us = launch.measured_us || 0, at = start;
        start += us;
        return { name: launch.kernel, start: at, us, text: t("{kernel}: measured {time}, at least {bound}", { kernel: launch.kernel, time: microseconds(us), bound: microseconds(launch.us) }) };
      });
      rows.unshift({ label: "measured", colour: "c6", named: true, events: measured });
      rows[1].label = "bound";
    }
    for (const pipe of data.pipes) {
      const events = pipe.events.map((event) => ({ name: event.name, start: event.start_us, us: event.us, text: eventText(pipe.pipe, event) }));
      rows.push({ label: pipe.pipe, colour: COLOURS[pipe.pipe] || "c7", events });
    }
    return rows;
  }
  function eventText(pipe, event) {
    const work = [event.name];
    if (event.tiles > 1) work.push(t("{count} tiles", { count: event.tiles }));
    if (event.bytes) work.push(t("{bytes} bytes", { bytes: countText(event.bytes) }));
    return t("{pipe}, {phase}: {work}, {time} from {start}", { pipe, phase: event.phase, work: work.join(", "), time: microseconds(event.us), start: microseconds(event.start_us) });
  }

  return function drawGantt(element, data) {
    const rows = rowsOf(data), end = Math.max(...rows.flatMap((row) => row.events.map((event) => event.start + event.us)), 1e-9);
    let from = 0, to = end, width = 0;
    const status = html("output", { class: "caption", "aria-live": "polite" });
    const stage = html("div", { class: "stage", tabindex: "0", role: "application", "aria-label": t("time line: plus and minus zoom, arrow keys move, Home shows everything") });
    function look(first, length) {
      const span = Math.min(Math.max(length, end * 1e-6), end);
      from = Math.min(Math.max(first, 0), end - span);
      to = from + span;
      redraw();
    }
    const zoom = (factor, at = (from + to) / 2) => look(at - (at - from) * factor, (to - from) * factor);
    const move = (share) => look(from + share * (to - from), to - from);
    const whole = () => look(0, end);
    function redraw() {
      if (!width) return;
      const height = rows.length * ROW + AXIS, inner = width - LEFT - 2, scale = inner / (to - from);
      const picture = svg("svg", { class: "gantt", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("{title} on {soc}: {rows}", { title: data.title, soc: data.soc, rows: rows.map((row) => t(row.label)).join(", ") }) });
      for (const at of ticks(from, to, inner / 90)) {
        const x = LEFT + (at - from) * scale;
        picture.append(svg("line", { x1: x, x2: x, y1: 0, y2: height - AXIS + 4, class: "grid" }));
        picture.append(svg("text", { x: Math.min(x, width - 30), y: height - 5, class: "caption", "text-anchor": x < LEFT + 20 ? "start" : "middle" }, `${at} us`));
      }
      rows.forEach((row, place) => {
        const y = place * ROW + 4;
        picture.append(svg("text", { x: 0, y: y + 13, class: "caption" }, t(row.label)));
        for (const event of row.events) {
          const x0 = LEFT + Math.max(event.start - from, 0) * scale, x1 = LEFT + Math.min(event.start + event.us - from, to - from) * scale;
          if (x1 < LEFT || x0 > width || event.start + event.us < from || event.start > to) continue;
          const wide = Math.max(x1 - x0, NARROWEST);
          picture.append(titled(event.text, svg("rect", { x: x0, y, width: wide, height: BAR, class: row.colour, "data-start": event.start, "data-us": event.us, "data-row": row.label })));
          if (row.named && event.name.length * CHARACTER < wide) picture.append(svg("text", { x: x0 + 5, y: y + 13, class: "on" }, event.name));
        }
      });
      stage.replaceChildren(picture);
      status.textContent = t("{start} to {stop} of {end}", { start: microseconds(from), stop: microseconds(to), end: microseconds(end) });
    }
    stage.addEventListener("keydown", (event) => {
      const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Home: whole }[event.key];
      if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
    });
    stage.addEventListener("dblclick", (event) => zoom(0.5, from + ((event.offsetX - LEFT) / (width - LEFT - 2)) * (to - from)));
    let held = null;
    stage.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from }; });
    stage.addEventListener("pointermove", (event) => {
      if (held && event.buttons) look(held.from - ((event.clientX - held.x) / (width - LEFT - 2)) * (to - from), to - from);
    });
    stage.addEventListener("pointerup", () => { held = null; });
    const tools = html("div", { class: "tools" }, button("+", t("zoom in"), () => zoom(0.5)), button("\u2212", t("zoom out"), () => zoom(2)),
      button("\u2190", t("earlier"), () => move(-0.5)), button("\u2192", t("later"), () => move(0.5)), button(t("all"), t("show all"), whole), status);
    const launches = data.launches.map((launch) => [launch.kernel, microseconds(launch.start_us), microseconds(launch.us), `${(100 * launch.share).toFixed(1)} %`, launch.binds || t("no AI core"), launch.measured_us ? microseconds(launch.measured_us) : ""]);
    const pipes = data.pipes.flatMap((pipe) => pipe.events.map((event) => [pipe.pipe, event.phase, event.name, event.tiles, microseconds(event.start_us), microseconds(event.us), event.bytes]));
    const parts = [tools, stage, table(t("launches as a table"), ["launch", "starts", "at least", "share", "limited by", "measured"], launches)];
    if (pipes.length) parts.push(table(t("pipes of core {core}, the slowest, as a table", { core: data.core }), ["pipe", "phase", "tiles of", "tiles", "starts", "busy", "bytes"], pipes));
    element.replaceChildren(...parts);
    whenWide(stage, (wide) => { width = wide; redraw(); });
  };
})();
