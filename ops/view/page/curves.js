// Curves over the steps of metrics.jsonl, and settings of a search as memory against time.
const curveKinds = [
  { name: "loss", lines: [["loss", "training", "blue"], ["val_loss", "validation", "orange"]] },
  { name: "learning rate", lines: [["lr", "learning rate", "purple"]], fromZero: true },
  { name: "gradient norm, before clipping", lines: [["grad_norm", "gradient norm", "green"]], fromZero: true },
  { name: "tokens or other targets per second", lines: [["tokens_per_s", "throughput", "blue"]], fromZero: true },
  { name: "a step of rank 0, in ms", fromZero: true, clipped: true, lines: [["step_ms", "step", "grey"], ["forward_ms", "forward", "blue"], ["backward_ms", "backward", "green"],
    ["optimizer_ms", "optimizer", "purple"], ["comm_exposed_ms", "waiting", "red"]] },
  { name: "experts: load of the busiest over the mean", lines: [["expert_imbalance", "imbalance", "orange"]], fromZero: true },
];
const crosses = []; // of all charts: move together

function drawCurves() {
  const { metrics } = data;
  if (!metrics.step?.length) return;
  byId("curves").hidden = false;
  for (const kind of curveKinds) {
    const lines = kind.lines.filter(([key]) => metrics[key]?.some((value) => value !== null));
    if (lines.length) byId("curve-list").append(make("div", { class: "chart" }, curveChart(kind, lines)));
  }
  const keys = ["step", "loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "step_ms", "comm_exposed_ms", "peak_bytes"].filter((key) => metrics[key]);
  const most = 2000, rows = metrics.step.map((_, i) => i).slice(-most);
  byId("curve-table").append(table(keys, rows.map((i) => keys.map((key) => metrics[key][i] === null ? "" : numberText(metrics[key][i]))), true));
}

function table(heads, rows, numbers) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", {}, head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", numbers ? { class: "number" } : {}, cell))))));
}

function curveChart(kind, lines) {
  const { metrics } = data, several = lines.length > 1;
  const width = 460, height = several ? 226 : 210, left = 56, right = 10, top = several ? 40 : 24, bottom = 22;
  const values = lines.flatMap(([key]) => metrics[key].filter((value) => value !== null));
  let low = kind.fromZero ? Math.min(0, ...bounds(values)) : bounds(values)[0], high = bounds(values)[1];
  // A slow first step would press all others to the ground.
  const own = metrics[lines[0][0]].filter((value) => value !== null).sort((a, b) => a - b), usual = own[own.length >> 1];
  const highest = high;
  if (kind.clipped && high > 4 * usual) high = 2.5 * usual;
  if (!(high > low)) { const margin = Math.abs(low) * 0.05 || 1; low -= margin; high += margin; }
  const spread = high - low;
  high += 0.04 * spread;
  if (!kind.fromZero) low -= 0.04 * spread;
  const steps = metrics.step, first = steps[0] < steps[steps.length - 1] / 2 ? 0 : steps[0], last = Math.max(steps[steps.length - 1], first + 1);
  const x = (step) => left + (step - first) / (last - first) * (width - left - right);
  const y = (value) => top + (high - value) / (high - low) * (height - top - bottom);
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": `${kind.name} by step; the arrow keys read it` });
  for (const mark of marksWithin(low, high, 5))
    svg.append(makeSvg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }),
      makeSvg("text", { x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, numberText(mark)));
  for (const mark of marksWithin(first, last, 6).filter((mark) => Number.isInteger(mark)))
    svg.append(makeSvg("text", { x: x(mark), y: height - 6, "text-anchor": "middle" }, numberText(mark)));
  svg.append(makeSvg("text", { class: "name", x: left, y: 13 }, kind.name));
  const clip = `clip-${crosses.length}`;
  svg.append(makeSvg("clipPath", { id: clip }, makeSvg("rect", { x: left - 4, y: top - 4, width: width - left - right + 8, height: height - top - bottom + 8 })));
  if (highest > high) svg.append(makeSvg("text", { x: width - right, y: top + 10, "text-anchor": "end" }, `the highest, ${numberText(highest)}, is above`));
  for (const [key, , tone] of lines) {
    const points = metrics[key].map((value, i) => [steps[i], value]).filter(([, value]) => value !== null);
    const line = points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(makeSvg("path", { d: line, "clip-path": `url(#${clip})`, fill: "none", stroke: `var(--${tone}-line)`, "stroke-width": 1.6, "stroke-linejoin": "round" }));
    if (points.length <= 40 || key === "val_loss")
      for (const [step, value] of points.filter(([, value]) => value <= high)) svg.append(makeSvg("circle", { cx: x(step), cy: y(value), r: key === "val_loss" ? 3 : 2, fill: `var(--${tone}-line)` }));
  }
  const cross = makeSvg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  const value = makeSvg("text", several ? { class: "value", x: left, y: 29 } : { class: "value", x: width - right, y: 13, "text-anchor": "end" });
  svg.append(cross, value);
  const valueAt = (key, at) => metrics[key][at] === null ? "\u2013" : numberText(metrics[key][at]);
  /// The lines' names, or their values at a step.
  const showLegend = (at) => value.replaceChildren(...lines.flatMap(([key, name, tone], i) => [
    makeSvg("tspan", { fill: `var(--${tone}-line)` }, (i ? "\u2003" : "") + (several ? "\u25cf " : "")),
    makeSvg("tspan", {}, at === null ? (several ? name : "") : (lines.length === 2 ? name + " " : "") + valueAt(key, at))]),
    makeSvg("tspan", { fill: "var(--muted)" }, at === null ? "" : `\u2003step ${steps[at]}`));
  showLegend(null);
  crosses.push((at) => {
    setAttributes(cross, at === null ? { visibility: "hidden" } : { x1: x(steps[at]), x2: x(steps[at]), visibility: "visible" });
    showLegend(at);
  });
  const moveTo = (at) => crosses.forEach((move) => move(at));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), step = first + ((event.clientX - box.left) / box.width * width - left) / (width - left - right) * (last - first);
    moveTo(nearest(steps, step));
  });
  svg.addEventListener("pointerleave", () => moveTo(null));
  svg.addEventListener("blur", () => moveTo(null));
  let current = steps.length - 1;
  svg.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    current = Math.max(0, Math.min(current + (event.key === "ArrowLeft" ? -1 : 1), steps.length - 1));
    moveTo(current);
  });
  return svg;
}

function bounds(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  return [low, high];
}

function nearest(steps, step) {
  let best = 0;
  steps.forEach((one, i) => { if (Math.abs(one - step) < Math.abs(steps[best] - step)) best = i; });
  return best;
}

/// A dot for each of the settings that `plan` has simulated, and a line along the front.
function drawSettings() {
  const front = data.settings.filter((setting) => setting.front).sort((a, b) => a.ms - b.ms);
  if (data.settings.length < 2 || !front.length) return;
  byId("settings").hidden = false;
  const shown = data.settings.filter((setting) => setting.ms <= 1.25 * front[front.length - 1].ms);
  const width = 1100, height = 340, left = 70, right = 20, top = 10, bottom = 24;
  const low = Math.min(...shown.map((setting) => setting.ms)) * 0.97, high = Math.max(...shown.map((setting) => setting.ms));
  const most = Math.max(...shown.map((setting) => setting.bytes)) / 2 ** 30 * 1.05;
  const x = (ms) => left + (ms - low) / (high - low || 1) * (width - left - right), y = (gib) => top + (1 - gib / most) * (height - top - bottom);
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Memory of the fullest rank against the time of a step" });
  for (const mark of marksWithin(0, most, 6))
    svg.append(makeSvg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }),
      makeSvg("text", { x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, `${numberText(mark)} GiB`));
  for (const mark of marksWithin(low, high, 8)) svg.append(makeSvg("text", { x: x(mark), y: height - 6, "text-anchor": "middle" }, msText(mark)));
  svg.append(makeSvg("polyline", { points: front.map((setting) => `${x(setting.ms)},${y(setting.bytes / 2 ** 30)}`).join(" "), fill: "none", stroke: "var(--blue-line)" }));
  for (const setting of [...shown.filter((one) => !one.front), ...front]) {
    const dot = makeSvg("circle", { cx: x(setting.ms), cy: y(setting.bytes / 2 ** 30), r: setting.front ? 5 : 3.5,
      fill: setting.front ? "var(--blue-strong)" : "var(--grey-strong)", stroke: setting.front ? "var(--blue-line)" : "none", tabindex: setting.front ? 0 : false });
    dot.addEventListener("pointermove", (event) => showTooltip(`${msText(setting.ms)}, ${bytesText(setting.bytes)}\n${setting.text}`, event.clientX, event.clientY));
    dot.addEventListener("pointerleave", hideTooltip);
    svg.append(dot);
  }
  byId("settings-chart").append(svg);
  byId("settings-table").append(table(["step", "", "memory", "settings"], front.map((setting) =>
    [msText(setting.ms), `+${(100 * (setting.ms / front[0].ms - 1)).toFixed(1)} %`, bytesText(setting.bytes), setting.text])));
}
