// The parts of the page: each takes the data and fills its host, or says that there is nothing to show.
const numberCell = text => element("td", { class: "number" }, text);
const cell = text => element("td", {}, text);
const heading = (text, kind = "") => element("th", kind ? { class: kind } : {}, text);

function table(headings, rows) {
  const head = element("tr", {}, ...headings.map(each => (Array.isArray(each) ? heading(...each) : heading(each))));
  return element("div", { class: "scroll tall" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

// [[share of the width, tint]]
function meter(parts) {
  const bar = element("div", { class: "meter", "aria-hidden": "true" });
  for (const [share, tint] of parts) bar.append(element("i", { class: "mark", style: `width:${(100 * share).toFixed(2)}%;background:${tint}` }));
  return bar;
}

const median = values => {
  const sorted = values.filter(value => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
};
const last = values => (values.length ? values[values.length - 1] : null);

function tiles(host, data) {
  const { metrics, evaluation, run } = data, steps = data.steps || last(metrics.step);
  const all = [
    ["Loss", digits(last(metrics.loss)), metrics.step.length ? `${digits(metrics.loss[0])} at step ${metrics.step[0]}` : "no step yet"],
    ["Throughput", shortened(median(metrics.tokens_per_second)), "tokens/s, median"],
    ["Step", seconds(median(metrics.step_seconds)), `${counted(last(metrics.step) || 0, "step")}${steps > last(metrics.step) ? " of " + steps.toLocaleString("en") : ""}`],
  ];
  if (evaluation.step.length) all.splice(1, 0, ["Evaluation loss", digits(last(evaluation.loss)), last(evaluation.perplexity) === null ? "" : `perplexity ${digits(last(evaluation.perplexity))}`]);
  const stages = run ? run.mesh.axes.find(axis => axis.name === "pp") : null;
  if (stages && stages.size > 1) all.push(["Bubble", percent(last(metrics.bubble)), `${percent(last(metrics.predicted_bubble))} predicted with equal stages`]);
  if (data.images.step.length) all.push(["Images", digits(median(data.images.images)), "per step, median"]);
  if (data.peak_memory_bytes.length) all.push(["Peak memory", bytes(Math.max(...data.peak_memory_bytes)), "tensors of the rank with the most"]);
  host.replaceChildren(...all.map(([label, value, note]) =>
    element("div", { class: "card tile" }, element("p", { class: "label" }, label), element("p", { class: "value" }, value), element("p", { class: "note" }, note))));
}

function trainingCharts(hosts, { metrics, evaluation }) {
  const curve = (name, y, tint) => ({ name, x: metrics.step, y, tint });
  curves(hosts[0], { title: "Loss", format: digits, smooth: true,
    series: [curve("training", metrics.loss, colour("accent")), ...(evaluation.step.length ? [{ name: "evaluation", x: evaluation.step, y: evaluation.loss, tint: colour("second"), dots: true }] : [])] });
  curves(hosts[1], { title: "Gradient norm", unit: "before clipping", format: digits, smooth: true, series: [curve("gradient norm", metrics.grad_norm, colour("accent"))] });
  curves(hosts[2], { title: "Learning rate", format: value => digits(value, 3), fromZero: true, series: [curve("learning rate", metrics.lr, colour("accent"))] });
  curves(hosts[3], { title: "Throughput", unit: "tokens/s", format: shortened, fromZero: true, smooth: true, series: [curve("tokens/s", metrics.tokens_per_second, colour("accent"))] });
}

function imageChart(host, { images }) {
  curves(host, { title: "Images", unit: "per step", format: shortened, fromZero: true, series: [{ name: "images", x: images.step, y: images.images, tint: colour("accent") }] });
}

function rewardCharts(hosts, rewards) {
  const curve = (name, key, tint) => ({ name, x: rewards.step, y: rewards["rewards/" + key], tint });
  curves(hosts[0], { title: "Rewards", format: digits, smooth: true,
    series: [curve("chosen", "chosen", colour("accent")), curve("rejected", "rejected", colour("second")), curve("margin", "margins", colour("third"))] });
  if (hosts.length > 1)
    curves(hosts[1], { title: "Accuracy", unit: "share of pairs with a margin above 0", format: percent, fromZero: true, smooth: true, series: [curve("accuracy", "accuracies", colour("accent"))] });
}

// Choices that were scored, and prompts with what the model makes of them.
function answers(host, { choices, accuracy, f1, normalised_accuracy: normalised, samples }) {
  const parts = [];
  if (!choices && accuracy !== undefined) parts.push(element("p", {}, `${percent(accuracy)} of the held-out predictions are correct${f1 === undefined ? "" : `, F1 ${percent(f1)}`}.`));
  if (choices) parts.push(element("p", {}, `${counted(choices, "question")}: ${percent(accuracy)} correct by likelihood, ${percent(normalised)} correct by likelihood per character.`));
  if (samples) parts.push(table(["Prompt", "Greedy continuation"], samples.map(({ prompt, text }) => element("tr", {}, cell(prompt), cell(text)))));
  host.replaceChildren(...parts);
}

function bubbleChart(host, { metrics }) {
  curves(host, { title: "Bubble", unit: "share of the pipeline's time that was idle", format: percent, fromZero: true,
    series: [{ name: "measured", x: metrics.step, y: metrics.bubble, tint: colour("accent") },
             { name: "predicted, equal stages", x: metrics.step, y: metrics.predicted_bubble, tint: colour("second") }] });
}

function memory(host, { run, peak_memory_bytes: peaks }) {
  const expected = run && run.memory ? run.memory : [], longest = Math.max(...peaks, ...expected.map(each => each.state_bytes));
  const rows = peaks.map((peak, rank) => {
    const state = expected[rank] ? expected[rank].state_bytes : null;
    const parts = state === null ? [[peak / longest, colour("accent")]]
      : [[Math.min(state, peak) / longest, colour("accent")], [Math.max(0, peak - state) / longest, colour("second")]];
    const bar = element("td", { class: "share" }, meter(parts));
    return element("tr", {}, cell(nameOf(run, rank)), bar, numberCell(bytes(peak)), ...(state === null ? [] : [numberCell(bytes(state)), numberCell(bytes(Math.max(0, peak - state)))]));
  });
  const known = expected.length > 0;
  host.replaceChildren(
    table(["rank", ["", "share"], ["peak", "number"], ...(known ? [["computed state", "number"], ["remainder", "number"]] : [])], rows));
  if (known) host.append(element("div", { class: "legend", style: "margin-top:8px" },
    element("span", {}, element("i", { class: "box", style: "background:" + colour("accent") }), "weights, gradients and optimizer state, computed from the configuration"),
    element("span", {}, element("i", { class: "box", style: "background:" + colour("second") }), "activations, messages and temporary tensors: the remainder of the measured peak")));
}

function nameOf(run, rank) {
  if (!run) return "rank " + rank;
  const place = run.mesh.ranks[rank], axes = run.mesh.axes.filter(axis => axis.size > 1).map(axis => `${axis.name} ${place[axis.name]}`);
  return "rank " + rank + (axes.length ? " · " + axes.join(", ") : "");
}

function communication(host, { run }) {
  const rows = run.communication, longest = Math.max(...rows.map(row => row.seconds_per_step), 1e-12);
  host.replaceChildren(table(["axis", "operation", ["calls a step", "number"], ["bytes a step", "number"], ["time a step", "number"], ["", "share"]],
    rows.map(row => element("tr", {}, cell(row.axis), cell(row.operation), numberCell(digits(row.calls_per_step, 3)), numberCell(bytes(row.bytes_per_step)),
      numberCell(seconds(row.seconds_per_step)), element("td", { class: "share" }, meter([[row.seconds_per_step / longest, colour("accent")]]))))));
}

// A row for each part of a step and for memory, predicted and measured one below the other.
function planned(host, { predicted, measured }, lead) {
  const most = all => Math.max(...all, 0), names = Object.keys(measured.seconds).filter(name => measured.seconds[name] > 0 || (predicted && predicted.seconds[name] > 0));
  const row = (name, shown, was, expected, whole) => element("tr", {}, cell(name), ...(predicted ? [numberCell(shown(expected))] : []), numberCell(shown(was)),
    ...(predicted ? [numberCell(signedPercent((was - expected) / whole))] : []),
    element("td", { class: "share" }, ...(predicted ? [meter([[expected / Math.max(whole, expected), colour("second")]])] : []), meter([[was / Math.max(whole, expected || 0), colour("accent")]])));
  const rows = names.map(name => row(name, seconds, measured.seconds[name], predicted && predicted.seconds[name], measured.step_seconds));
  rows.push(row("step", seconds, measured.step_seconds, predicted && predicted.step_seconds, measured.step_seconds));
  if (measured.memory_bytes.length)
    rows.push(row("memory", bytes, most(measured.memory_bytes), predicted && most(predicted.memory_bytes), most(measured.memory_bytes)));
  host.replaceChildren(element("p", { class: "quiet" }, lead),
    table(["part", ...(predicted ? [["predicted", "number"]] : []), ["measured", "number"], ...(predicted ? [["difference, share of the step", "number"]] : []), ["", "share"]], rows));
}
const signedPercent = value => (value < 0 ? "−" : "+") + percent(Math.abs(value));

function operators(host, { run }) {
  const rows = run.operators, whole = rows.reduce((sum, row) => sum + row.own_seconds, 0) || 1;
  host.replaceChildren(table(["operator", ["calls", "number"], ["own time", "number"], ["", "share"], ["with inner operators", "number"], ["memory", "number"], "shapes of the longest call"],
    rows.map(row => element("tr", {}, cell(row.name), numberCell(row.calls.toLocaleString("en")), numberCell(seconds(row.own_seconds)),
      element("td", {}, meter([[row.own_seconds / whole, colour("accent")]])), numberCell(seconds(row.total_seconds)), numberCell(signedBytes(row.memory_bytes)), cell(row.shapes)))));
}
const signedBytes = value => (value < 0 ? "−" + bytes(-value) : bytes(value));

function mesh(host, { run }) {
  const axes = run.mesh.axes, stages = new Map();
  for (const place of run.mesh.ranks) {
    if (!stages.has(place.pp)) stages.set(place.pp, []);
    stages.get(place.pp).push(place);
  }
  const grid = element("div", { class: "mesh tall" });
  for (const [stage, places] of [...stages].sort((a, b) => a[0] - b[0])) {
    const cells = element("div", { class: "mesh-cells" });
    for (const place of places) cells.append(element("div", { class: "cell" }, "rank " + place.rank, element("small", {}, `dp ${place.dp}, tp ${place.tp}`)));
    grid.append(element("div", { class: "mesh-row" }, element("span", { class: "quiet" }, "pp " + stage), cells));
  }
  host.replaceChildren(element("h3", {}, "Mesh: " + axes.map(axis => `${axis.name} ${axis.size}`).join(" × ")), grid);
}

function stageTable(host, { run }) {
  const { schedule, stages } = run, withLayers = stages.some(stage => stage.layers !== undefined);
  const layers = stage => (stage.layers === 0 ? "none" : stage.layers === 1 ? String(stage.first_layer) : `${stage.first_layer} to ${stage.first_layer + stage.layers - 1}`);
  host.replaceChildren(
    element("h3", { style: "margin-bottom:6px" }, `Stages: ${schedule.name}, ${counted(schedule.microbatches, "microbatch", "microbatches")}`),
    table(["stage", "pipeline rank", ...(withLayers ? ["layers", ["number of layers", "number"]] : [])],
      stages.map(stage => element("tr", {}, cell(String(stage.stage)), cell("pp " + stage.pipeline_rank), ...(withLayers ? [cell(layers(stage)), numberCell(String(stage.layers))] : [])))));
}

function environment(host, { run, name }) {
  const rows = run ? Object.entries(run.environment) : [];
  const list = element("dl");
  for (const [key, value] of [["output", name], ...rows]) list.append(element("dt", {}, key.replaceAll("_", " ")), element("dd", {}, String(value)));
  host.replaceChildren(element("h3", { style: "margin-bottom:8px" }, "Environment"), list);
}

function configuration(host, { config }) {
  const copy = element("button", { type: "button", class: "button" }, "Copy");
  copy.addEventListener("click", () => navigator.clipboard && navigator.clipboard.writeText(config).then(() => { copy.textContent = "Copied"; }, () => {}));
  host.replaceChildren(element("div", { class: "chart-head" }, element("h3", {}, "Configuration as resolved"), copy), element("pre", { tabindex: "0" }, config || "there is no config.yaml"));
}
