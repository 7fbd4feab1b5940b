"use strict";
// drawCurves(element, data): lines over an axis, with limits across them and hatched ranges of refused calls; data is what npu_sim.show.forms.curves.curve_chart gives. Buttons, keys and a drag over the picture choose the part that is shown.
const drawCurves = (() => {
  const { html, svg, titled, button, countText, table, whenWide, ticks, t } = pictures;
  const HEIGHT = 300, BOTTOM = 40, RIGHT = 8, ROW = 18, COLOURS = 8, CHARACTER = 7.4, MARKED = 60, NARROWEST = 1e-6;

  const turnOf = (axis) => (axis.logarithmic ? Math.log10 : (value) => value);
  const valueOf = (axis) => (axis.logarithmic ? (at) => 10 ** at : (at) => at);
  const shown = (value) => (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e15) ? Number(value.toPrecision(4)).toExponential() : countText(Number(value.toPrecision(15))));

  // Round values between two places of an axis, as [value, place].
  function marksOf(axis, [low, high], most) {
    const value = valueOf(axis);
    if (axis.logarithmic) {
      const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9), step = Math.max(Math.ceil((last - first + 1) / most), 1);
      const powers = [];
      for (let power = first; power <= last; power += step) powers.push([Number(`1e${power}`), power]);
      if (last - first > 2) return powers;
      const marks = [1, 2, 5].flatMap((digit) => [...Array(last - first + 3).keys()].map((more) => digit * 10 ** (first + more - 1))).map((at) => [at, turnOf(axis)(at)]);
      const inside = marks.filter(([, place]) => place >= low && place <= high).sort(([one], [other]) => one - other);
      const each = Math.ceil(inside.length / Math.max(most, 2));
      if (inside.length > 1) return inside.filter((mark, number) => number % each === 0);
    }
    return ticks(value(low), value(high), most).map((at) => [at, turnOf(axis)(at)]);
  }

  // The places that values cover, with a margin on both sides; wider than a point.
  function spread(places, margin) {
    const low = Math.min(...places), high = Math.max(...places), room = (high - low) * margin || Math.abs(low) * margin || 1;
    return [low - room, high + room];
  }
  const within = (curve, [low, high]) => curve.places.map((place, number) => number).filter((number) => curve.places[number] >= low && curve.places[number] <= high);

  return function drawCurves(element, data) {
    const name = `curves-${Math.random().toString(36).slice(2)}`, turn = turnOf(data.x), height = turnOf(data.y);
    const curves = data.curves.map((curve, number) => ({ ...curve, places: curve.x.map(turn), heights: curve.y.map(height), colour: curve.control ? "control" : `k${number % COLOURS}` }));
    // Of equal curves the later ones are drawn above the earlier ones, which are wider.
    for (const [number, curve] of curves.entries()) curve.covers = curves.slice(number + 1).filter((other) => String([other.x, other.y]) === String([curve.x, curve.y])).length;
    const whole = spread(data.x.span ? data.x.span.map(turn) : curves.flatMap((curve) => curve.places), 0.02);
    const across = data.limits.filter((limit) => limit.axis === "x"), upright = data.limits.filter((limit) => limit.axis === "y");
    let seen = whole, width = 0;
    const status = html("output", { class: "caption", "aria-live": "polite" });
    const stage = html("div", { class: "stage plain", tabindex: "0", role: "application", "aria-label": t("{title} by {axis}: plus and minus zoom, arrow keys move, Home shows everything", { title: data.y.title, axis: data.x.title }) });

    function look(low, high) {
      const most = whole[1] - whole[0], length = Math.min(Math.max(high - low, most * NARROWEST), most), first = Math.min(Math.max(low, whole[0]), whole[1] - length);
      seen = [first, first + length];
      redraw();
    }
    const length = () => seen[1] - seen[0];
    const zoom = (factor, middle = (seen[0] + seen[1]) / 2) => look(middle - (length() * factor) / 2, middle + (length() * factor) / 2);
    const move = (share) => look(seen[0] + share * length(), seen[1] + share * length());
    const everything = () => look(...whole);

    let scale = null; // of the picture that is shown
    function redraw() {
      if (!width) return;
      const heights = curves.flatMap((curve) => {
        const inside = within(curve, seen), before = curve.places.findLastIndex((place) => place < seen[0]);
        return [...(curve.stepped && before >= 0 ? [before] : []), ...inside].map((number) => curve.heights[number]);
      });
      const range = spread([...heights, ...(seen === whole || !heights.length ? upright.map((limit) => height(limit.value)) : [])].filter(Number.isFinite), 0.06);
      const top = ROW * across.length + 6, bottom = top + HEIGHT, rows = marksOf(data.y, range, 6);
      const left = 30 + CHARACTER * Math.max(...rows.map(([value]) => shown(value).length), 1), inner = width - left - RIGHT;
      const x = (place) => left + ((place - seen[0]) / length()) * inner, y = (place) => bottom - ((place - range[0]) / (range[1] - range[0])) * HEIGHT;
      scale = { x, y, left, inner, top, bottom };
      const picture = svg("svg", { class: "area curves", width, height: bottom + BOTTOM, viewBox: `0 0 ${width} ${bottom + BOTTOM}`, role: "img", "aria-label": t("{title} by {axis}", { title: data.y.title, axis: data.x.title }) });
      picture.append(svg("defs", {}, svg("clipPath", { id: name }, svg("rect", { x: left, y: top, width: inner, height: HEIGHT })), hatching(`${name}-no`)));
      for (const [value, place] of rows) picture.append(svg("line", { x1: left, x2: width - RIGHT, y1: y(place), y2: y(place), class: "grid" }), text(left - 6, y(place) + 4, "caption", "end", shown(value)));
      for (const [value, place] of marksOf(data.x, seen, inner / 80)) picture.append(svg("line", { x1: x(place), x2: x(place), y1: top, y2: bottom, class: "grid" }), text(x(place), bottom + 15, "caption", x(place) > width - 40 ? "end" : "middle", shown(value)));
      picture.append(text(left + inner / 2, bottom + 34, "caption", "middle", data.x.title), svg("text", { class: "caption", "text-anchor": "middle", transform: `translate(12 ${top + HEIGHT / 2}) rotate(-90)` }, data.y.title));
      const plot = svg("g", { "clip-path": `url(#${name})` });
      for (const refused of data.refused) plot.append(titled(refused.text, svg("rect", { x: x(turn(refused.first)), width: Math.max(x(turn(refused.end)) - x(turn(refused.first)), 1), y: top, height: HEIGHT, fill: `url(#${name}-no)`, class: "refused" })));
      for (const curve of curves) plot.append(svg("path", { d: pathOf(curve, x, y), class: `line ${curve.colour}${curve.dashed ? " dashed" : ""}`, style: curve.covers ? `stroke-width: ${2 + 2 * Math.min(curve.covers, 3)}px` : null, "data-curve": curve.name }), ...(curve.joined && curve.x.length > MARKED ? [] : [svg("path", { d: curve.places.map((place, number) => `M${x(place).toFixed(2)} ${y(curve.heights[number]).toFixed(2)}h0`).join(""), class: `dots ${curve.colour}` })]));
      picture.append(plot);
      across.forEach((limit, row) => mark(picture, limit, row));
      for (const limit of upright) {
        const at = y(height(limit.value));
        if (at >= top && at <= bottom) picture.append(svg("line", { x1: left, x2: width - RIGHT, y1: at, y2: at, class: "limit" }), text(width - RIGHT, at - 4, "limit", "end", limit.text));
      }
      stage.replaceChildren(picture);
    }
    function pathOf(curve, x, y) {
      if (!curve.joined) return "M0 0";
      const points = curve.places.map((place, number) => [x(place).toFixed(2), y(curve.heights[number]).toFixed(2)]);
      return points.map(([at, to], number) => (number === 0 ? `M${at} ${to}` : curve.stepped ? `H${at}V${to}` : `L${at} ${to}`)).join("") || "M0 0";
    }
    const text = (x, y, kind, anchor, content) => svg("text", { x, y, class: kind, "text-anchor": anchor }, content);
    const hatching = (id) => svg("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { width: 7, height: 7, class: "hatch-ground" }), svg("line", { x1: 0, x2: 0, y1: 0, y2: 7, class: "hatch" }));
    // Every limit of the axis has a row above the curves: a line where it lies in the picture, an arrow where it lies beyond.
    function mark(picture, limit, row) {
      const { x, left, inner, top, bottom } = scale, place = turn(limit.value), at = x(place), y = ROW * row + 13;
      if (place < seen[0]) return picture.append(text(left, y, "limit", "start", `\u2190 ${limit.text}`));
      if (place > seen[1]) return picture.append(text(width - RIGHT, y, "limit", "end", `${limit.text} \u2192`));
      picture.append(svg("line", { x1: at, x2: at, y1: top, y2: bottom, class: "limit" }), text(at, y, "limit", at > left + inner / 2 ? "end" : "start", limit.text));
    }

    // The point of every curve under the pointer: of steps the last one, of other curves the nearest.
    function tell(place) {
      const told = curves.map((curve) => {
        const after = curve.places.findIndex((other) => other > place), last = after < 0 ? curve.places.length - 1 : after - 1;
        const nearest = !curve.stepped && after > 0 && curve.places[after] - place < place - curve.places[last] ? after : last;
        return nearest < 0 ? null : `${curve.name}: ${data.x.title} ${shown(curve.x[nearest])}, ${shown(curve.y[nearest])}`;
      });
      status.textContent = told.filter(Boolean).join("; ");
    }
    let start = null;
    const placeAt = (event) => {
      const box = stage.getBoundingClientRect(), share = (event.clientX - box.left - scale.left) / scale.inner;
      return seen[0] + Math.min(Math.max(share, 0), 1) * length();
    };
    stage.addEventListener("pointerdown", (event) => (start = event.pointerType === "mouse" ? placeAt(event) : null));
    stage.addEventListener("pointermove", (event) => scale && tell(placeAt(event)));
    stage.addEventListener("pointerup", (event) => {
      const end = placeAt(event), first = start;
      start = null;
      if (first !== null && Math.abs(end - first) > length() / 50) look(Math.min(first, end), Math.max(first, end));
    });
    stage.addEventListener("dblclick", everything);
    const keys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), Home: everything };
    stage.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });

    const tools = [["+", "zoom in", () => zoom(0.5)], ["\u2212", "zoom out", () => zoom(2)], ["\u2190", "earlier", () => move(-0.25)], ["\u2192", "later", () => move(0.25)], [t("all"), "show all", everything]];
    const legend = [...curves.map((curve) => [svg("path", { d: "M0 6H12", class: `line ${curve.colour}${curve.dashed ? " dashed" : ""}` }), curve.name]), ...(data.refused.length ? [[svg("path", { d: "M0 0 12 12M0 12 12 0", class: "hatch" }), t("refused")]] : [])];
    const entries = legend.map(([drawn, what]) => html("li", {}, svg("svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" }, drawn), ` ${what}`));
    const numbers = table(t("the curves as a table"), [], []);
    const rows = () => curves.flatMap((curve) => curve.x.map((value, number) => [curve.name, value, curve.y[number]]));
    numbers.addEventListener("toggle", () => numbers.lastElementChild.replaceWith(table(t("the curves as a table"), ["curve", data.x.title, data.y.title], rows()).lastElementChild), { once: true });
    element.replaceChildren(html("div", { class: "tools" }, ...tools.map(([sign, label, act]) => button(sign, t(label), act))), stage, status, ...(entries.length > 1 ? [html("ul", { class: "legend" }, ...entries)] : []), numbers);
    whenWide(stage, (wide) => { width = wide; redraw(); });
  };
})();
