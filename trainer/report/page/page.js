// Puts the parts together, once for a report; again and again while a run is live.
const order = ["training", "rewards", "images", "answers", "pipeline", "experts", "memory", "communication", "plan", "operators", "layout", "setup"];
const main = document.getElementById("main");
const made = new Map();  // part -> its hosts, so that newer values keep place, focus and zoom
const shown = new Map();  // part -> what it was drawn from

function part(name, title, lead, shape, count = 1) {
  if (made.has(name)) return made.get(name);
  const hosts = Array.from({ length: count }, () => element("div", { class: "card" }));
  const section = element("section", { id: name, "aria-label": title }, element("h2", {}, title));
  if (lead) section.append(element("p", { class: "lead" }, lead));
  section.append(element("div", { class: shape }, ...hosts));
  const after = order.slice(order.indexOf(name) + 1).map(each => document.getElementById(each)).find(each => each);
  main.insertBefore(section, after || null);
  made.set(name, hosts);
  return hosts;
}


// Draws anew only what has changed.
function fill(name, source, draw) {
  const text = JSON.stringify(source);
  if (shown.get(name) === text) return;
  shown.set(name, text);
  draw();
}

function heads(data) {
  const { run, metrics } = data;
  document.getElementById("name").textContent = data.name;
  document.title = data.name + " · Gantry";
  const done = last(metrics.step) || 0;
  document.getElementById("summary").textContent = run
    ? `${counted(run.mesh.ranks.length, "rank")} (${run.mesh.axes.map(axis => axis.name + " " + axis.size).join(" × ")}), ${run.schedule.name}, step ${done.toLocaleString("en")}${data.steps ? " of " + data.steps.toLocaleString("en") : ""}`
    : `step ${done.toLocaleString("en")}${data.steps ? " of " + data.steps.toLocaleString("en") : ""}`;
  const failure = document.getElementById("failure");
  failure.hidden = !(run && run.failure);
  failure.textContent = failure.hidden ? "" : "The run failed: " + run.failure;
  document.getElementById("footer").textContent = [run ? "Gantry " + run.environment.gantry : "Gantry", data.written ? "written " + data.written : ""].filter(each => each).join(", ") +
    (data.skipped_lines ? `; ${counted(data.skipped_lines, "line")} of metrics.jsonl could not be read` : "");
}

function render(data) {
  const { run, metrics } = data;
  heads(data);
  if (!made.has("tiles")) {
    made.set("tiles", element("div", { class: "tiles" }));
    main.prepend(made.get("tiles"));
  }
  tiles(made.get("tiles"), data);
  if (metrics.step.length) {
    const hosts = part("training", "Training", "", "charts", 4);
    fill("training", [metrics.step.length, last(metrics.step), data.evaluation], () => trainingCharts(hosts, data));
  }
  const { rewards } = data;
  if (rewards.step.length) {
    const scored = rewards["rewards/accuracies"].some(value => value !== null);
    const hosts = part("rewards", "Rewards", "Means over the samples of a step: the rewards of chosen and rejected completions, and their margin.", "charts", scored ? 2 : 1);
    fill("rewards", [rewards.step.length, last(rewards.step)], () => rewardCharts(hosts, rewards));
  }
  if (data.images.step.length) {
    const [host] = part("images", "Images", "", "stack");
    fill("images", [data.images.step.length, last(data.images.step)], () => imageChart(host, data));
  }
  if (data.answers) {
    const [host] = part("answers", "Answers", `Results of the evaluation after step ${data.answers.step.toLocaleString("en")}.`, "stack");
    fill("answers", data.answers, () => answers(host, data.answers));
  }
  if (run && run.mesh.axes.some(axis => axis.name === "pp" && axis.size > 1) && metrics.step.length) {
    const hosts = part("pipeline", "Pipeline",
      "Computation of the pipeline's ranks in the step below, and a simulation of the same schedule with these mean times and without the cost of messages. A rank is idle between its bars: this is the bubble.", "stack", 2);
    if (run.timeline) fill("timeline", run.timeline, () => timelineView(hosts[0], run.timeline));
    else hosts[0].hidden = true;
    if (run.timeline) hosts[0].hidden = false;
    fill("bubble", [metrics.step.length, last(metrics.step)], () => bubbleChart(hosts[1], data));
  }
  if (data.experts) {
    const [host] = part("experts", "Experts", "Distribution of the tokens over the experts: one row for each layer with experts.", "stack");
    fill("experts", data.experts, () => experts(host, data.experts));
  }
  if (data.peak_memory_bytes.length) {
    const [host] = part("memory", "Memory", "Peak memory of the tensors of each rank.", "stack");
    fill("memory", [data.peak_memory_bytes, run && run.memory], () => memory(host, data));
  }
  if (run && run.communication && run.communication.length) {
    const [host] = part("communication", "Communication", "Data that a rank passes to communication in one step, and the time for it including waits, as the mean over the ranks.", "stack");
    fill("communication", run.communication, () => communication(host, data));
  }
  if (run && run.plan) {
    const { cluster, largest_gap: gap, steps } = run.plan;
    const [host] = part("plan", "Parts of a step", "", "stack");
    fill("plan", run.plan, () => planned(host, run.plan, (cluster ? `Predicted for ${cluster}, and measured` : "Measured") + ` as the mean of ${counted(steps, "step")}, on the rank with the most work.` + (gap ? " The largest difference is in " + gap.text + "." : "")));
  }
  if (run && run.operators && run.operators.length) {
    const [host] = part("operators", "Costliest operators", "Operators of the profiled steps on rank 0, sorted by their own time.", "stack");
    fill("operators", run.operators, () => operators(host, data));
  }
  if (run) {
    const hosts = part("layout", "Layout", "", "two", 2);
    fill("layout", [run.mesh, run.stages, run.schedule], () => { mesh(hosts[0], data); stageTable(hosts[1], data); });
  }
  const hosts = part("setup", "Setup", "", "two", 2);
  fill("setup", [data.config, run && run.environment], () => { configuration(hosts[0], data); environment(hosts[1], data); });
}

function theme() {
  const prefers = matchMedia("(prefers-color-scheme: dark)"), button = document.getElementById("theme");
  const key = "gantry-theme";
  let chosen = null;
  try { chosen = localStorage.getItem(key); } catch { /* a file that may not store */ }
  const apply = () => {
    const dark = chosen ? chosen === "dark" : prefers.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
  };
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem(key, chosen); } catch { /* then it lasts as long as the page */ }
    apply();
  });
  prefers.addEventListener("change", apply);
  apply();
}

const kPause = 2000;  // milliseconds between looks at a live run
function state(text, kind) {
  const badge = document.getElementById("state");
  badge.textContent = text;
  badge.className = "state " + kind;
}

async function follow() {
  for (let misses = 0; misses < 5; ) {
    try {
      const answer = await fetch("data.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const data = await answer.json();
      misses = 0;
      state(data.live ? "live" : "ended", data.live ? "live" : "");
      render(data);
      if (!data.live) return;
    } catch {
      ++misses;
      state("no answer", "lost");
    }
    await new Promise(resolve => setTimeout(resolve, kPause));
  }
  state("the run has ended", "");
}

theme();
const first = JSON.parse(document.getElementById("data").textContent);
render(first);
if (first.live) follow();
else if (first.run && first.run.failure) state("failed", "lost");
else state(first.steps && last(first.metrics.step) < first.steps ? "not finished" : "finished", "");
