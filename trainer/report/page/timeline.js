// The pipeline's last step: what ran when, above what the simulator makes of the same times. One scale for both.
const KINDS = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient" };

// Rows of {group, rank, actions: [[kind, stage, microbatch, start, end]]}, and where each lies.
function lanesOf(timeline) {
  const lanes = [], several = timeline.measured.ranks.some(row => row.some(action => action[1] !== row[0][1]));
  const height = timeline.measured.ranks.length > 16 ? 16 : 26;
  let y = 0;
  for (const [group, name] of [["measured", "Measured"], ["simulated", "Simulated with the measured times"]]) {
    const heading = y + 15;
    y += 24;
    timeline[group].ranks.forEach((actions, rank) => {
      lanes.push({ group, name, heading: rank === 0 ? heading : null, rank, actions, y, height });
      y += height + 5;
    });
    y += 14;
  }
  return { lanes, several, bottom: y - 14, end: Math.max(timeline.measured.makespan, timeline.simulated.makespan, 1e-9) };
}

function timelineView(host, timeline) {
  const { lanes, several, bottom, end } = lanesOf(timeline);
  const left = 48, right = 6, least = end / 2000;
  let view = [0, end], size = 0, picked = null, drag = null;
  const zoomIn = element("button", { type: "button", class: "button", "aria-label": "Zoom in" }, "+");
  const zoomOut = element("button", { type: "button", class: "button", "aria-label": "Zoom out" }, "−");
  const whole = element("button", { type: "button", class: "button" }, "Full step");
  const kinds = [...new Set(lanes.flatMap(lane => lane.actions.map(action => action[0])))].sort((a, b) => Object.keys(KINDS).indexOf(a) - Object.keys(KINDS).indexOf(b));
  const legend = element("div", { class: "legend" }, ...kinds.map(kind => element("span", {}, element("i", { class: "box", style: "background:" + colour(kind) }), KINDS[kind])));
  const plot = element("div", { class: "plot timeline", tabindex: "0", role: "application", "aria-roledescription": "timeline",
    "aria-label": "Actions of the last step. Arrows walk through the actions and ranks, plus and minus zoom, 0 shows the full step." });
  const svg = mark(plot, "svg", { class: "timeline-plot" });
  host.replaceChildren(
    element("div", { class: "chart-head" }, element("h3", {}, "Step " + timeline.step.toLocaleString("en"), element("span", { class: "unit" }, " · milliseconds")),
      legend, element("div", { class: "tools" }, zoomOut, zoomIn, whole)),
    plot, element("p", { class: "quiet", style: "font-size:12.5px;margin-top:8px" }, "Zoom with Ctrl and the wheel, and drag to move. The buttons and, if the plot has the focus, the keys +, − and the arrows do the same."));

  const toX = time => left + ((time - view[0]) / (view[1] - view[0])) * (size - left - right);
  const toTime = x => view[0] + ((x - left) / (size - left - right)) * (view[1] - view[0]);

  const bar = (group, lane, action) => {
    const [kind, stage, microbatch, start, stop] = action;
    const x = Math.max(toX(start), left), width = Math.min(toX(stop), size - right) - x;
    const light = several && stage !== Math.min(...new Set(lane.actions.map(each => each[1])));
    const shape = mark(group, "rect", { class: "mark action", x: x.toFixed(2), y: lane.y, width: Math.max(width - (width > 3 ? 1 : 0), 0.6).toFixed(2), height: lane.height, rx: width > 7 ? 3 : 0, fill: colour(kind) });
    if (light) shape.setAttribute("opacity", 0.7);
    if (picked && picked.action === action) shape.classList.add("picked");
    const label = several ? stage + kind + microbatch : kind + microbatch;
    if (label.length * 6.6 + 3 < width && lane.height > 18) mark(group, "text", { class: "bar-label", x: x + width / 2, y: lane.y + lane.height / 2 + 4 }, label);
  };

  const draw = () => {
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${size} ${bottom + 34}`);
    svg.setAttribute("height", bottom + 34);
    for (const time of ticks(view[0], view[1], Math.max(3, Math.floor(size / 110)))) {
      mark(svg, "line", { class: "grid", x1: toX(time), x2: toX(time), y1: 24, y2: bottom });
      mark(svg, "text", { x: Math.min(toX(time), size - 14), y: bottom + 17, "text-anchor": "middle" }, digits(time));
    }
    for (const lane of lanes) {
      if (lane.heading !== null) {
        mark(svg, "text", { x: 0, y: lane.heading, class: "strong" }, lane.name);
        mark(svg, "text", { x: size - right, y: lane.heading, "text-anchor": "end" }, "bubble " + percent(timeline[lane.group].bubble));
      }
      mark(svg, "text", { x: 0, y: lane.y + lane.height / 2 + 4 }, "pp " + lane.rank);
      mark(svg, "rect", { class: "lane", x: left, y: lane.y, width: size - left - right, height: lane.height, rx: 3 });
      let drawnTo = -1;  // what would lie within one pixel is drawn once
      for (const action of lane.actions) {
        if (action[4] < view[0] || action[3] > view[1] || toX(action[4]) < drawnTo + 0.5) continue;
        bar(svg, lane, action);
        drawnTo = toX(action[4]);
      }
    }
    zoomOut.disabled = whole.disabled = view[0] <= 0 && view[1] >= end;
    zoomIn.disabled = view[1] - view[0] <= least * 1.001;
  };

  const look = (from, length) => {
    const span = Math.min(end, Math.max(least, length));
    const start = Math.min(Math.max(0, from), end - span);
    view = [start, start + span];
    draw();
  };
  const zoom = (factor, about = (view[0] + view[1]) / 2) => look(about - (about - view[0]) * factor, (view[1] - view[0]) * factor);
  const describe = ({ lane, action: [kind, stage, microbatch, start, stop] }) => [
    `${KINDS[kind]}, microbatch ${microbatch}`,
    [["stage", String(stage)], ["pipeline rank", String(lane.rank)], ["from", digits(start) + " ms"], ["to", digits(stop) + " ms"], ["takes", digits(stop - start, 3) + " ms"]]];
  const show = (found, x, y, spoken) => {
    const [head, rows] = describe(found);
    showTip(x, y, (lanes[0] === found.lane || found.lane.group === "measured" ? "" : "simulated ") + head, rows);
    if (spoken) speak(found.lane.group + " " + head + ", " + rows.map(row => row.join(" ")).join(", "));
  };
  const at = event => {
    const box = plot.getBoundingClientRect(), time = toTime(event.clientX - box.left), y = event.clientY - box.top;
    const lane = lanes.find(each => y >= each.y && y <= each.y + each.height);
    const action = lane && lane.actions.find(each => each[3] <= time && time <= each[4]);
    return action ? { lane, action } : null;
  };
  const walk = (along, across) => {
    if (!picked) picked = { lane: lanes[0], action: lanes[0].actions[0] };
    else if (along) picked = { lane: picked.lane, action: picked.lane.actions[picked.lane.actions.indexOf(picked.action) + along] || picked.action };
    else {
      const lane = lanes[lanes.indexOf(picked.lane) + across] || picked.lane, middle = (picked.action[3] + picked.action[4]) / 2;
      if (lane.actions.length) picked = { lane, action: lane.actions.reduce((a, b) => (Math.abs((b[3] + b[4]) / 2 - middle) < Math.abs((a[3] + a[4]) / 2 - middle) ? b : a)) };
    }
    const [, , , start, stop] = picked.action;
    if (start < view[0] || stop > view[1]) look((start + stop) / 2 - (view[1] - view[0]) / 2, view[1] - view[0]);
    else draw();
    const box = plot.getBoundingClientRect();
    show(picked, box.left + toX((start + stop) / 2), box.top + picked.lane.y, true);
  };

  zoomIn.addEventListener("click", () => zoom(0.5));
  zoomOut.addEventListener("click", () => zoom(2));
  whole.addEventListener("click", () => look(0, end));
  plot.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== plot) return;  // the page scrolls
    event.preventDefault();
    zoom(Math.exp(Math.sign(event.deltaY) * 0.25), toTime(event.clientX - plot.getBoundingClientRect().left));
  }, { passive: false });
  plot.addEventListener("pointerdown", event => {
    drag = { x: event.clientX, from: view[0] };
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", event => {
    if (drag && Math.abs(event.clientX - drag.x) > 3) {
      plot.classList.add("dragged");
      hideTip();
      return look(drag.from - ((event.clientX - drag.x) / (size - left - right)) * (view[1] - view[0]), view[1] - view[0]);
    }
    const found = at(event);
    found ? show(found, event.clientX, event.clientY, false) : hideTip();
  });
  for (const over of ["pointerup", "pointercancel"])
    plot.addEventListener(over, () => { drag = null; plot.classList.remove("dragged"); });
  plot.addEventListener("pointerleave", hideTip);
  plot.addEventListener("blur", () => { picked = null; hideTip(); draw(); });
  plot.addEventListener("keydown", event => {
    const act = { ArrowLeft: () => walk(-1, 0), ArrowRight: () => walk(1, 0), ArrowUp: () => walk(0, -1), ArrowDown: () => walk(0, 1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => look(0, end), Home: () => look(0, view[1] - view[0]), End: () => look(end, view[1] - view[0]) }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  drawIn(plot, width => { size = width; draw(); });
}
