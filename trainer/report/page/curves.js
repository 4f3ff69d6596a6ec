// Curves over steps. A chart is {title, unit, format, series: [{name, x, y, tint, dots, smooth}]}.
const CURVE_HEIGHT = 218;

// The mean of a window around each value, which shrinks towards the ends so that it never lags; gaps stay out of it.
function smoothed(values) {
  const reach = Math.min(50, Math.max(2, Math.round(values.length / 40)));
  const sums = [0], counts = [0];
  values.forEach((value, i) => { sums.push(sums[i] + (value || 0)); counts.push(counts[i] + (value === null ? 0 : 1)); });
  return values.map((value, i) => {
    const side = Math.min(reach, i, values.length - 1 - i), from = i - side, to = i + side + 1;
    return value === null ? null : (sums[to] - sums[from]) / (counts[to] - counts[from]);
  });
}

// At most a lowest and a highest value a pixel column, so that long runs stay quick and keep their spikes.
function thinned(points, width) {
  if (points.length <= 2 * width) return points;
  const kept = [], size = points.length / width;
  for (let i = 0; i < width; ++i) {
    const part = points.slice(Math.floor(i * size), Math.floor((i + 1) * size));
    if (part.length === 0) continue;
    const low = part.reduce((a, b) => (b[1] < a[1] ? b : a)), high = part.reduce((a, b) => (b[1] > a[1] ? b : a));
    kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

function pathOf(x, y, toX, toY, width) {
  let path = "", run = [];
  const flush = () => {
    thinned(run, Math.max(50, Math.round(width))).forEach(([a, b], i) => { path += (i ? "L" : "M") + a.toFixed(1) + " " + b.toFixed(1); });
    run = [];
  };
  for (let i = 0; i < x.length; ++i) y[i] === null ? flush() : run.push([toX(x[i]), toY(y[i])]);
  flush();
  return path;
}

function rangeOf(series, fromZero) {
  const finite = series.flatMap(each => each.y).filter(value => value !== null);
  if (finite.length === 0) return [0, 1];
  let low = fromZero ? 0 : Math.min(...minMax(finite)), high = Math.max(...minMax(finite));
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; low -= fromZero ? 0 : room; high += room; }
  const room = (high - low) * 0.06;
  return [fromZero ? 0 : low - room, high + room];
}

function minMax(values) {  // Math.min(...) of a long run would overflow the stack
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}

function curveLegend(chart) {
  const legend = element("div", { class: "legend" });
  for (const { name, tint, dots, y } of chart.series) {
    if (chart.series.length < 2) break;
    legend.append(element("span", {}, element("i", { style: "background:" + tint, class: dots ? "box" : "" }), name + (y.length ? "" : " (none yet)")));
  }
  return legend;
}

function drawCurves(svg, chart, width) {
  const [low, high] = rangeOf(chart.series, chart.fromZero);
  const labels = ticks(low, high, 5).filter(value => value >= low && value <= high).map(value => [value, chart.format(value)]);
  const left = 12 + 6.6 * Math.max(...labels.map(([, text]) => text.length)), right = 10, top = 8, bottom = CURVE_HEIGHT - 36;
  const [first, last] = minMax(chart.series.flatMap(each => each.x));
  const span = last > first ? last - first : 1;
  const toX = step => left + (last > first ? (step - first) / span : 0.5) * (width - left - right);
  const toY = value => bottom - ((value - low) / (high - low)) * (bottom - top);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${CURVE_HEIGHT}`);
  svg.setAttribute("height", CURVE_HEIGHT);
  for (const [value, text] of labels) {
    mark(svg, "line", { class: "grid", x1: left, x2: width - right, y1: toY(value), y2: toY(value) });
    mark(svg, "text", { x: left - 7, y: toY(value) + 4, "text-anchor": "end" }, text);
  }
  mark(svg, "line", { class: "axis", x1: left, x2: width - right, y1: bottom, y2: bottom });
  for (const step of ticks(first, last, Math.max(3, Math.floor((width - left) / 75))).filter(Number.isInteger))
    mark(svg, "text", { x: toX(step), y: bottom + 16, "text-anchor": "middle" }, step.toLocaleString("en"));
  mark(svg, "text", { x: (left + width - right) / 2, y: CURVE_HEIGHT - 3, "text-anchor": "middle" }, "step");
  for (const each of chart.series) drawSeries(svg, each, chart, toX, toY, { width, top });
  return { left, right, top, bottom, first, span, toX, toY };
}

function drawSeries(svg, { x, y, tint, dots }, chart, toX, toY, { width, top }) {
  const softened = chart.smooth && !dots && y.length >= 60;
  const line = { fill: "none", stroke: tint, "stroke-width": 1.8, "stroke-linejoin": "round" };
  mark(svg, "path", { ...line, d: pathOf(x, y, toX, toY, width), class: "mark", ...(softened ? { "stroke-width": 1, opacity: 0.35 } : {}) });
  if (softened) mark(svg, "path", { ...line, d: pathOf(x, smoothed(y), toX, toY, width), class: "mark" });
  if (dots || y.length <= 30)
    y.forEach((value, i) => value !== null && mark(svg, "circle", { class: "mark", cx: toX(x[i]), cy: toY(value), r: dots ? 3.5 : 2.5, fill: tint }));
  y.forEach((value, i) => {
    if (value === null) mark(svg, "path", { class: "bad", d: `M${toX(x[i])} ${top}l4 7h-8z` });
  });
}

// The place in x of what is nearest to `step`.
function nearest(x, step) {
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    x[middle] < step ? (low = middle) : (high = middle);
  }
  return Math.abs(x[low] - step) <= Math.abs(x[high] - step) ? low : high;
}

const shownCurves = new WeakMap();  // host -> what takes newer values

function curves(host, newest) {
  if (shownCurves.has(host)) return shownCurves.get(host)(newest);
  let chart = newest, frame = null, place = -1, cross = [], legend = element("div");
  const head = element("div", { class: "chart-head" }, element("h3", {}, chart.title, element("span", { class: "unit" }, chart.unit ? " · " + chart.unit : "")), legend);
  const plot = element("div", { class: "plot", tabindex: "0", role: "img" });
  const svg = mark(plot, "svg", { class: "curve-plot" });
  host.replaceChildren(head, plot);
  const update = next => {
    chart = next;
    const fresh = curveLegend(chart), values = chart.series[0].y;
    legend.replaceWith(fresh);
    legend = fresh;
    plot.setAttribute("aria-label", `${chart.title} by step, last ${chart.format(values.length ? values[values.length - 1] : null)}. Left and right read the values.`);
    drawIn(plot, width => { frame = drawCurves(svg, chart, width); cross = []; });
  };
  shownCurves.set(host, update);
  const clear = () => { cross.forEach(each => each.remove()); cross = []; hideTip(); };
  const show = spoken => {
    clear();
    const step = chart.series[0].x[place], box = plot.getBoundingClientRect();
    const rows = [];
    cross.push(mark(svg, "line", { class: "cross", x1: frame.toX(step), x2: frame.toX(step), y1: frame.top, y2: frame.bottom }));
    for (const { name, x, y, tint } of chart.series) {
      const i = x.length ? nearest(x, step) : -1;
      if (i < 0 || (x[i] !== step && y.length < chart.series[0].y.length / 4 && Math.abs(frame.toX(x[i]) - frame.toX(step)) > 6)) continue;
      rows.push([name, y[i] === null ? "not finite" : chart.format(y[i], true), tint]);
      if (y[i] !== null) cross.push(mark(svg, "circle", { cx: frame.toX(x[i]), cy: frame.toY(y[i]), r: 4, fill: tint }));
    }
    showTip(box.left + frame.toX(step), box.top + 30, "step " + step.toLocaleString("en"), rows);
    if (spoken) speak(`step ${step}: ` + rows.map(([name, value]) => name + " " + value).join(", "));
  };
  plot.addEventListener("pointermove", event => {
    if (!chart.series[0].x.length) return;
    const at = event.clientX - plot.getBoundingClientRect().left - frame.left;
    place = nearest(chart.series[0].x, frame.first + (at / (frame.toX(frame.first + frame.span) - frame.left || 1)) * frame.span);
    show(false);
  });
  plot.addEventListener("pointerleave", clear);
  plot.addEventListener("blur", clear);
  plot.addEventListener("keydown", event => {
    const count = chart.series[0].x.length, move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined || count === 0) return;
    place = Math.max(0, Math.min(count - 1, (place < 0 ? count - 1 : place) + move * Math.max(1, Math.round(count / 200))));
    show(true);
    event.preventDefault();
  });
  update(chart);
}
