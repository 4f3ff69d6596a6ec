// How evenly experts are used: a row a layer, a column an expert, at a time that a slider chooses.
const FULL = 3;  // times the mean, from where on a cell has the whole colour

function expertCells(svg, loads, size) {
  const left = 34, top = 6, most = Math.max(...loads.map(row => row.length)), high = loads.length > 24 ? 12 : 20;
  const wide = Math.max(2, (size - left) / most);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${size} ${top + loads.length * high + 26}`);
  svg.setAttribute("height", top + loads.length * high + 26);
  loads.forEach((row, layer) => {
    if (high > 12 || layer % 4 === 0) mark(svg, "text", { x: left - 7, y: top + layer * high + high / 2 + 4, "text-anchor": "end" }, String(layer));
    row.forEach((load, expert) => mark(svg, "rect", { class: load < 0.05 ? "expert starving" : "expert", x: (left + expert * wide).toFixed(2), y: top + layer * high,
      width: Math.max(1, wide - 1).toFixed(2), height: high - 1, fill: colour("accent"), "fill-opacity": Math.max(0.04, Math.min(1, load / FULL)).toFixed(3) }));
  });
  mark(svg, "text", { x: left + (size - left) / 2, y: top + loads.length * high + 18, "text-anchor": "middle" }, "expert");
  return (x, y) => ({ layer: Math.floor((y - top) / high), expert: Math.floor((x - left) / wide) });
}

let chosenStretch = null;  // what the slider has chosen; null: the last one

function experts(host, { routers, steps, loads, dropped }) {
  const newest = steps.length - 1;
  const slider = element("input", { type: "range", min: "0", max: String(newest), value: String(chosenStretch === null ? newest : Math.min(chosenStretch, newest)), "aria-label": "Steps that are shown" });
  const when = element("span", { class: "unit" });
  const plot = element("div", { class: "plot", tabindex: "0", role: "img" });
  const svg = mark(plot, "svg", { class: "experts-plot" });
  host.replaceChildren(
    element("div", { class: "chart-head" }, element("h3", {}, "Tokens of each expert, over its layer's mean", when), element("div", { class: "tools" }, slider)), plot,
    element("p", { class: "quiet", style: "font-size:12.5px;margin-top:8px" }, `The full colour means ${FULL} times the mean or more. A red frame marks an expert with less than a twentieth of the mean. ` +
      (dropped ? `${dropped.toLocaleString("en")} choices were dropped.` : "No token was dropped.")));
  let size = 0, place = null, at = { layer: -1, expert: 0 };
  const shown = () => loads[Number(slider.value)];
  const draw = () => {
    const index = Number(slider.value), from = index > 0 ? steps[index - 1] + 1 : Math.min(1, steps[0]);
    when.textContent = ` · steps ${from.toLocaleString("en")} to ${steps[index].toLocaleString("en")}`;
    const worst = shown().reduce((best, row, layer) => (Math.max(...row) > best[1] ? [layer, Math.max(...row)] : best), [0, 0]);
    plot.setAttribute("aria-label", `Experts of ${counted(routers.length, "layer")}: the most uneven is ${routers[worst[0]]}, whose largest has ${digits(worst[1])} times the mean. Arrows walk through the cells.`);
    place = expertCells(svg, shown(), size);
  };
  const show = (found, x, y, spoken) => {
    const row = shown()[found.layer], load = row && row[found.expert];
    if (load === undefined) return hideTip();
    at = found;
    const rows = [["expert", String(found.expert)], ["tokens over the mean", digits(load)], ["largest of the layer", digits(Math.max(...row))]];
    showTip(x, y, routers[found.layer], rows);
    if (spoken) speak(routers[found.layer] + ", " + rows.map(each => each.join(" ")).join(", "));
  };
  slider.addEventListener("input", () => { chosenStretch = Number(slider.value) === newest ? null : Number(slider.value); draw(); });
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    show(place(event.clientX - box.left, event.clientY - box.top), event.clientX, event.clientY, false);
  });
  plot.addEventListener("pointerleave", hideTip);
  plot.addEventListener("blur", hideTip);
  plot.addEventListener("keydown", event => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const layer = Math.max(0, Math.min(routers.length - 1, at.layer + (at.layer < 0 ? 1 : move[0])));
    const expert = Math.max(0, Math.min(shown()[layer].length - 1, at.expert + move[1])), box = plot.getBoundingClientRect();
    show({ layer, expert }, box.left + 60, box.top + 20, true);
  });
  drawIn(plot, width => { size = width; draw(); });
}
