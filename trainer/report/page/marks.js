// Elements, numbers as people read them, the tooltip.
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function mark(parent, name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function digits(value, count = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(count)));
}

// 12.3k, 4.56M: of counts and rates.
function shortened(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (Math.abs(value) >= size) return Number((value / (unit === "k" ? 1e3 : size)).toPrecision(3)) + unit;
  return digits(value, value >= 1000 ? 4 : 3);
}

function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (value >= size) return Number((value / size).toPrecision(3)) + " " + unit;
  return Math.round(value) + " B";
}

function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1e-3) return Number((value * 1e6).toPrecision(3)) + " µs";
  if (value < 1) return Number((value * 1e3).toPrecision(3)) + " ms";
  if (value < 100) return Number(value.toPrecision(3)) + " s";
  const minutes = Math.round(value / 60);
  return minutes < 100 ? minutes + " min" : Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

const percent = value => (value === null || value === undefined ? "–" : (100 * value).toFixed(1) + "%");
const counted = (count, one, many = one + "s") => count.toLocaleString("en") + " " + (count === 1 ? one : many);
const colour = name => "var(--" + name + ")";

// About `most` round numbers from low to high, ends not included unless they are round.
function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= raw * (1 - 1e-9));
  const all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) all.push(Number((i * step).toPrecision(12)));
  return all;
}

const tip = document.getElementById("tip");
function showTip(x, y, head, rows) {
  tip.replaceChildren(element("b", {}, head));
  for (const [name, value, tint] of rows) {
    const label = element("span");
    if (tint) label.append(element("i", { style: "background:" + tint }));
    label.append(name);
    tip.append(element("div", {}, label, element("span", {}, value)));
  }
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  tip.style.transform = `translate(${Math.max(6, Math.min(left, innerWidth - box.width - 6))}px, ${Math.max(6, y - box.height - 10)}px)`;
}
function hideTip() {
  tip.hidden = true;
}
function speak(text) {
  document.getElementById("spoken").textContent = text;
}

// Calls draw(width) now and whenever the host's width changes.
const drawn = new WeakMap();
const watcher = new ResizeObserver(entries => {
  for (const { target } of entries) {
    const known = drawn.get(target);
    if (known && known.width !== target.clientWidth && target.clientWidth > 0) redraw(target);
  }
});
function redraw(host) {
  const known = drawn.get(host);
  known.width = host.clientWidth;
  known.draw(known.width);
}
function drawIn(host, draw) {
  const isNew = !drawn.has(host);
  drawn.set(host, { draw, width: 0 });
  redraw(host);
  if (isNew) watcher.observe(host);
}
