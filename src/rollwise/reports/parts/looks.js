// What lines, points and areas look like.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A line's colour and dash, or a point's colour and shape: eight colours, then the same ones with the next dash or shape.
const COLOURS = 8;
const DASHES = [[], [12, 4], [2, 3], [12, 3, 2, 3]];
const SHAPES = ["circle", "square", "triangle", "cross"];
const DASHED = [6, 5];

function hue(line) { return `--c${line.colour % COLOURS}`; }

function pattern(line) { return Math.floor(line.colour / COLOURS) % DASHES.length; }

function dashOf(line) { return line.style === "dashed" ? DASHED : DASHES[pattern(line)]; }

// The outline of a shape of radius r around (x, y), as an SVG path.
function outline(shape, x, y, r) {
  if (shape === "circle") return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  if (shape === "square") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  if (shape === "triangle") return `M${x} ${y - r}l${r} ${2 * r}h${-2 * r}z`;
  return `M${x - r} ${y - r}l${2 * r} ${2 * r}M${x + r} ${y - r}l${-2 * r} ${2 * r}`;
}

// What fills an area: its colour, or stripes of it where the colours repeat.
function filling(line) {
  if (!pattern(line)) return colour(hue(line));
  const size = 6 * devicePixelRatio, tile = make("canvas", { width: size, height: size }), ctx = tile.getContext("2d");
  ctx.fillStyle = colour("--paper");
  ctx.fillRect(0, 0, size, size);
  ctx.fillStyle = colour(hue(line));
  if (pattern(line) !== 2) ctx.fillRect(0, 0, size, size / 2);
  if (pattern(line) !== 1) ctx.fillRect(0, 0, size / 2, size);
  return ctx.createPattern(tile, "repeat");
}

// What a line, a point or an area looks like, for the legend.
function swatch(line, stacked) {
  const draw = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const drawing = draw("svg", { width: 26, height: 10, "aria-hidden": "true" });
  const stroke = `var(${hue(line)})`;
  if (line.style === "points") drawing.append(draw("path", { d: outline(SHAPES[pattern(line)], 13, 5, 3.5), stroke, fill: stroke, "stroke-width": 1.5 }));
  else drawing.append(draw("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke, "stroke-width": stacked ? 10 : line.style === "faint" ? 1 : 2.5, opacity: line.style === "faint" ? 0.6 : 1, "stroke-dasharray": dashOf(line).join(" ") }));
  return drawing;
}
