"use strict";
// Draws every figure of the report in the colours of the page, and again when the reader switches between light and dark.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function draw(figure) {
    const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
    const axis = { gridcolor: colour("--rule"), zerolinecolor: colour("--rule"), linecolor: colour("--rule"), automargin: true, exponentformat: "none" };
    const lines = (layout.shapes || []).map((shape) => ({ ...shape, line: { color: colour("--bad"), ...shape.line } }));
    const themed = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 70, r: 20, t: 40, b: 55 },
      colorway: dark.matches
        ? ["#79b8ff", "#f0a35e", "#6fd38a", "#ff8a9c", "#b69cf5", "#e0cd5c", "#56c7c2", "#c9a27a"]
        : ["#0b5cad", "#c2600a", "#1d7a35", "#b0294a", "#6b4bb8", "#7d6a00", "#0f7a76", "#7a5530"],
      hovermode: "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--faint"), activecolor: colour("--accent") },
      legend: { orientation: "h", yanchor: "top", y: -0.2 },
      shapes: lines,
      xaxis: { ...axis, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
    };
    Plotly.react(figure.querySelector("div"), data, themed, {
      responsive: true,
      displaylogo: false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]], // none that talks to a server
    });
  }
  const figures = [...document.querySelectorAll("figure.plot")];
  figures.forEach(draw);
  dark.addEventListener("change", () => figures.forEach(draw));
})();
