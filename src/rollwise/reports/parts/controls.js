// Shows the charts of a page, with what zooms those together that share an axis.
// Zoom all charts that share the axis; null shows all.
function zoom(low, high) {
  view.low = low === null || high === null || !(high > low) ? null : low;
  view.high = view.low === null ? null : high;
  for (const each of charts.values()) if (each.shared) { each.applyZoom(); each.describe(); }
  showZoom();
}

let controls = null;

function showZoom() {
  if (!controls) return;
  const number = (value) => (value === null ? "" : String(Math.round(value * 100) / 100));
  controls.low.value = number(view.low);
  controls.high.value = number(view.high);
}

function addControls() {
  const place = document.getElementById("chart-controls");
  const main = Object.values(report.grids).find((grid) => "steps" in grid && "tokens" in grid);
  if (!main) return;
  const axes = Object.keys(main);
  const read = () => {
    const ends = [...charts.values()].find((each) => each.shared).x;
    const typed = [controls.low.value, controls.high.value].map((text) => (text === "" ? null : Number(text)));
    if (typed[0] === null && typed[1] === null) zoom(null, null);
    else zoom(typed[0] ?? ends[0], typed[1] ?? ends[ends.length - 1]);
  };
  controls = {
    axis: make("select", { id: "chart-axis", onchange: (event) => { view.axis = event.target.value; zoom(null, null); for (const each of charts.values()) each.fillTable(); } },
      ...axes.map((name) => make("option", { value: name, text: name }))),
    low: make("input", { id: "chart-from", type: "number", step: "any", onchange: read }),
    high: make("input", { id: "chart-to", type: "number", step: "any", onchange: read }),
  };
  view.axis = axes[0];
  place.replaceChildren(
    make("label", {}, "against", controls.axis), make("label", {}, "from", controls.low), make("label", {}, "to", controls.high),
    make("button", { type: "button", id: "chart-all", text: "Show all", onclick: () => zoom(null, null) }),
  );
}

function showCharts() {
  const place = document.getElementById("chart-list");
  for (const spec of report.charts) {
    const host = document.getElementById(`place-${spec.id}`) || place;
    const made = new Chart(spec);
    charts.set(spec.id, made);
    host.append(made.figure);
    made.resize();
  }
}

function redraw() {
  for (const each of charts.values()) each.uplot.redraw(false);
  if (typeof histories !== "undefined") for (const each of histories) each.uplot.redraw(false);
}

if (document.getElementById("chart-list")) {
  addControls();
  showCharts();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "print"; redraw(); });
addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; redraw(); });
