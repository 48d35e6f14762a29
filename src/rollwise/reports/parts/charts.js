// Charts with hover, zoom, a legend that switches lines, keys, touch, and a table behind each.
const MOST_ROWS = 200;
// The distances that the ticks of an axis may have: 1, 2 and 5 times the powers of ten.
const DISTANCES = Array.from({ length: 18 }, (_, at) => [1, 2, 5].map((digit) => Number(`${digit}e${at - 6}`))).flat();
const WHOLE = DISTANCES.filter((distance) => distance >= 1);

const charts = new Map();
const view = { axis: "steps", low: null, high: null };

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.hidden = new Set();
    this.lines = spec.lines.map((line, number) => ({ ...line, colour: line.colour ?? number, key: line.group ?? line.label }));
    this.spoken = make("p", { class: "hidden", "aria-live": "polite" });
    this.plot = make("div", { class: "plot", tabindex: 0, role: "group", "aria-roledescription": "chart" });
    this.legend = make("ul", { class: "legend" });
    this.table = make("details", { class: "more", ontoggle: () => this.fillTable() }, make("summary", { text: "Table" }));
    this.figure = make("figure", { class: spec.wide ? "chart wide" : "chart", id: `chart-${spec.id}` }, make("figcaption", { text: spec.title }), make("p", { class: "about" }, ...withCode(spec.about || "")), this.plot, this.spoken, this.legend, this.table);
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    for (const kind of ["pointerdown", "pointermove"]) this.plot.addEventListener(kind, (event) => this.onTouch(event));
    this.build();
    this.applyZoom();
    this.describe();
    this.fillLegend();
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  get grid() { return report.grids[this.spec.grid]; }
  get axis() { return view.axis in this.grid ? view.axis : Object.keys(this.grid)[0]; }
  get shared() { return "steps" in this.grid; }
  // A line of a group stands behind the button of the one that is named for it.
  get named() { return this.lines.filter((line) => !line.group); }
  get x() { return this.grid[this.axis]; }

  // Columns for uPlot: x, then for each line its value and, where it has one, its band's ends.
  columns() {
    const columns = [this.x];
    if (this.spec.stacked) {
      let below = this.x.map(() => 0);
      const sums = this.lines.map((line) => {
        if (!this.hidden.has(line.key)) below = below.map((sum, at) => sum + (line.values[at] ?? 0));
        return below;
      });
      return columns.concat(sums.reverse());
    }
    for (const line of this.lines) {
      columns.push(line.values);
      if (line.low) columns.push(line.low, line.high);
    }
    return columns;
  }

  series() {
    const series = [{}], bands = [];
    const stroke = (line) => () => colour(hue(line));
    if (this.spec.stacked) {
      for (const line of [...this.lines].reverse()) {
        series.push({ label: line.label, stroke: stroke(line), fill: () => filling(line), width: 1, points: { show: false }, show: !this.hidden.has(line.key) });
      }
      return { series, bands };
    }
    for (const line of this.lines) {
      const few = line.values.filter((value) => value !== null).length < 3;
      const show = !this.hidden.has(line.key);
      series.push({
        label: line.label,
        stroke: line.style === "faint" ? () => colour(hue(line)) + "66" : stroke(line),
        width: line.style === "faint" ? 1 : line.style === "points" ? 0 : 2,
        dash: dashOf(line),
        points: { show: line.style !== "points" && (Boolean(line.points) || few), size: 6, fill: stroke(line) },
        spanGaps: true, show,
      });
      if (line.low) {
        const at = series.length;
        for (const end of ["low", "high"]) series.push({ label: `${line.label}, ${end}`, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true, show });
        bands.push({ series: [at + 1, at], fill: () => colour(hue(line)) + "2e" });
      }
    }
    return { series, bands };
  }

  build() {
    if (this.uplot) this.uplot.destroy();
    const ink = () => colour("--soft"), grid = () => colour("--grid");
    const axis = { stroke: ink, font: "12px system-ui", grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const spec = this.spec;
    const { series, bands } = this.series();
    this.uplot = new uPlot({
      ...this.size(), series, bands,
      legend: { show: false },
      scales: {
        x: { time: false, range: (u, min, max) => this.xRange(min, max) },
        y: { range: (u, min, max) => this.yRange(min, max), distr: spec.log ? 3 : 1 },
      },
      axes: [
        { ...axis, label: this.axisLabel(), labelFont: "12px system-ui", labelSize: 18, size: 34, space: 55, incrs: () => (this.axis === "steps" || this.x.every(Number.isInteger) ? WHOLE : DISTANCES), values: (u, ticks) => ticks.map((tick) => this.xText(tick)) },
        { ...axis, size: 52, values: (u, ticks) => ticks.map((tick) => (spec.unit === "share" ? Number((tick * 100).toFixed(2)) + " %" : tick === null ? "" : short(tick))) },
      ],
      cursor: {
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 },
        bind: { dblclick: () => () => { this.zoom(null, null); return null; } },
      },
      hooks: {
        setCursor: [() => this.readCursor()],
        draw: [(u) => this.drawPoints(u)],
        setSelect: [(u) => {
          if (u.select.width > 4) this.zoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          if (u.select.width) u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    }, this.columns(), this.plot);
    for (const canvas of this.plot.querySelectorAll("canvas")) canvas.setAttribute("aria-hidden", "true");
  }

  drawPoints(u) {
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left - 8, u.bbox.top - 8, u.bbox.width + 16, u.bbox.height + 16);
    u.ctx.clip();
    for (const line of this.lines.filter((each) => each.style === "points" && !this.hidden.has(each.key))) {
      u.ctx.strokeStyle = u.ctx.fillStyle = colour(hue(line));
      u.ctx.lineWidth = 1.5 * devicePixelRatio;
      line.values.forEach((value, at) => {
        if (value === null) return;
        const [x, y] = [u.valToPos(this.x[at], "x", true), u.valToPos(value, "y", true)];
        const shape = new Path2D(outline(SHAPES[pattern(line)], x, y, 4 * devicePixelRatio));
        u.ctx.stroke(shape);
        u.ctx.fill(shape);
      });
    }
    u.ctx.restore();
  }

  // Where the grid holds logarithms, show what they are of.
  xText(value) {
    if (value === null) return "";
    if (!this.spec.xpower) return short(value, 6);
    return Number.isInteger(value) ? short(this.spec.xpower ** value) : "";
  }

  axisLabel() { return this.spec.xlabel || (this.axis === "steps" ? "step" : this.axis); }

  xRange(min, max) {
    if (min === null) return [0, 1];
    const [low, high] = this.window || [min, max];
    return low === high ? [low - 1, high + 1] : [low, high];
  }

  yRange(min, max) {
    if (this.spec.log) return min === null ? [0.1, 1] : [min / 1.3, max * 1.3];
    if (min === null) { min = 0; max = 1; }
    const { low, high } = this.spec;
    if (this.spec.stacked) min = Math.min(0, min);
    const pad = (max - (low ?? min) || Math.abs(max) || 1) * 0.06;
    return [low ?? min - pad, high ?? max + pad];
  }

  size() { return { width: Math.max(200, this.plot.clientWidth), height: this.plot.clientHeight || 230 }; }

  resize() {
    const size = this.size();
    if (size.width !== this.uplot.width || size.height !== this.uplot.height) this.uplot.setSize(size);
  }

  applyZoom() {
    const own = this.x, last = own.length - 1;
    if (this.shared) this.window = view.low === null ? null : [view.low, view.high];
    this.uplot.axes[0].label = this.axisLabel();
    this.uplot.setData(this.columns(), false);
    const [low, high] = this.window || [own[0], own[last]];
    this.uplot.setScale("x", { min: low, max: high });
  }

  // Charts over steps are zoomed together, others alone.
  zoom(low, high) {
    if (this.shared) { zoom(low, high); return; }
    this.window = low === null || !(high > low) ? null : [low, high];
    this.applyZoom();
    this.describe();
  }

  visible(line) {
    const [low, high] = this.window || [-Infinity, Infinity];
    return line.values.filter((value, at) => value !== null && this.x[at] >= low && this.x[at] <= high);
  }

  describe() {
    const spans = this.named.map((line) => {
      const values = this.visible(line);
      if (!values.length) return `${line.label}: no values`;
      const [first, last] = [values[0], values[values.length - 1]].map((value) => shownValue(value, this.spec.unit));
      const [least, most] = [Math.min(...values), Math.max(...values)].map((value) => shownValue(value, this.spec.unit));
      return `${line.label}: first ${first}, last ${last}, from ${least} to ${most}`;
    });
    this.plot.setAttribute("aria-label", `${this.spec.title}, against ${this.axisLabel()}. ${spans.join("; ")}. Arrow keys read values.`);
  }

  // A line and, where it is the mean of one other line, that line too: each with its own value.
  shownBy(line) {
    const others = this.lines.filter((other) => other.group === line.label);
    return others.length === 1 ? [line, ...others] : [line];
  }

  fillLegend() {
    this.values = [];
    const items = this.named.map((line) => {
      const parts = this.shownBy(line).flatMap((each) => {
        const value = make("span", { class: "value" });
        this.values.push([each, value]);
        return [swatch(each, this.spec.stacked), make("span", { text: each.label }), value];
      });
      const button = make("button", {
        type: "button", "aria-pressed": String(!this.hidden.has(line.key)),
        onclick: () => this.toggle(line.key),
      }, ...parts);
      return make("li", {}, button);
    });
    this.at = make("li", { class: "value" });
    this.legend.replaceChildren(...items, this.at);
  }

  toggle(key) {
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.build();
    this.applyZoom();
    for (const [number, line] of this.named.entries()) {
      this.legend.children[number].firstChild.setAttribute("aria-pressed", String(!this.hidden.has(line.key)));
    }
  }

  readCursor() {
    const at = this.uplot.cursor.idx;
    const known = at !== null && at !== undefined && this.values;
    if (!this.values) return "";
    const words = this.values.map(([line, place]) => {
      const text = known ? this.valueAt(line, at) : "";
      place.textContent = text;
      return `${line.label} ${text}`;
    });
    this.at.textContent = known ? `${this.axisLabel()} ${this.xText(this.x[at])}` : "";
    return known ? `${this.at.textContent}: ${words.join(", ")}` : "";
  }

  valueAt(line, at) {
    const value = shownValue(line.values[at], this.spec.unit);
    if (!line.low || line.low[at] === null) return value;
    return `${value} [${shownValue(line.low[at], this.spec.unit)}, ${shownValue(line.high[at], this.spec.unit)}]`;
  }

  onKey(event) {
    const last = this.x.length - 1;
    const now = this.uplot.cursor.idx;
    const moves = { ArrowRight: (now ?? -1) + 1, ArrowLeft: (now ?? last + 1) - 1, Home: 0, End: last };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) {
      const at = Math.min(last, Math.max(0, moves[event.key]));
      this.uplot.setCursor({ left: this.uplot.valToPos(this.x[at], "x"), top: 10 });
      this.spoken.textContent = this.readCursor();
    } else if (["+", "=", "-"].includes(event.key)) {
      const { min, max } = this.uplot.scales.x;
      const middle = now === null || now === undefined ? (min + max) / 2 : this.x[now];
      const half = ((max - min) / 2) * (event.key === "-" ? 2 : 0.5);
      this.zoom(Math.max(this.x[0], middle - half), Math.min(this.x[last], middle + half));
    } else if (event.key === "0" || event.key === "Escape") this.zoom(null, null);
    else return;
    event.preventDefault();
  }

  // A finger reads the values where it touches.
  onTouch(event) {
    if (event.pointerType !== "touch") return;
    const { left, top, width } = this.uplot.over.getBoundingClientRect();
    this.uplot.setCursor({ left: Math.min(width, Math.max(0, event.clientX - left)), top: event.clientY - top });
  }

  fillTable() {
    if (!this.table.open) return;
    const count = this.x.length;
    const shown = Math.min(count, MOST_ROWS);
    const places = Array.from({ length: shown }, (_, at) => (shown < 2 ? 0 : Math.round((at * (count - 1)) / (shown - 1))));
    const head = make("tr", {}, make("th", { class: "number", scope: "col", text: this.axisLabel() }), ...this.lines.map((line) => make("th", { class: "number", scope: "col", text: line.label })));
    const rows = places.map((at) => make("tr", {}, make("th", { class: "number", scope: "row", "data-sort": this.x[at], text: this.xText(this.x[at]) }), ...this.lines.map((line) => make("td", { class: "number", "data-sort": line.values[at] ?? "", text: this.valueAt(line, at) }))));
    const note = shown < count ? make("p", { class: "soft", text: `${shown} of ${count} points, evenly spaced.` }) : null;
    const box = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table: ${this.spec.title}` }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
    this.table.replaceChildren(this.table.firstElementChild, ...(note ? [note, box] : [box]));
    makeSortable(box.firstElementChild);
  }
}
