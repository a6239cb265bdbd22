// The timeline: a row for each rank, on a canvas. Only what is visible is drawn, so the work does not grow with the trace.
const timeline = {
  canvas: byId("timeline-canvas"), from: 0, to: 1, rows: [], open: new Set(), span: null, spanRank: 0, queued: false,
  show: { schedule: true, messages: true, path: false },
};
const labelWidth = 72, axisHeight = 24, laneHeight = 13, scrollHeight = 8;
const partTones = { forward: "blue", backward: "green", backward_input: "green", backward_weight: "orange", update: "purple" };

const currentStep = () => unpackStep(profile.steps[selection.step]);
const rowHeight = () => { const n = profile.places.length; return n <= 8 ? 30 : n <= 16 ? 24 : n <= 32 ? 16 : n <= 96 ? 10 : 6; };

function drawTimelineSection() {
  byId("timeline").hidden = false;
  timeline.show.messages = profile.mesh.pp > 1 && profile.places.length <= 16;
  byId("timeline-words").textContent = (profile.predicted
    ? "A predicted step. "
    : "A recorded step, as it was. ") + "Red: a rank waits, and computes nothing. Below each row are collectives in the " +
    "background. Point at a box to read what it is; select a rank's name to see its modules and kernels.";
  byId("timeline-keys").replaceChildren(...keyHelp());
  makeTools();
  makeTimelineLegend();
  for (const [event, handler] of Object.entries(pointerHandlers)) timeline.canvas.addEventListener(event, handler);
  timeline.canvas.addEventListener("keydown", onTimelineKey);
  new ResizeObserver(layOut).observe(byId("timeline-frame"));
  selection.listeners.push((change) => {
    if ("step" in change) { timeline.span = null; fit(); }
    if ("rank" in change && timeline.spanRank !== change.rank) { timeline.span = null; timeline.spanRank = change.rank; }
    layOut();
  });
  layOut();
  fit();
}

function keyHelp() {
  const keys = [["\u2190 \u2192", "next box"], ["\u2191 \u2193", "rank"], ["+ \u2212", "zoom"], ["A D", "move"], ["0", "all"], ["Enter", "open a rank"],
    ["S", "schedule"], ["M", "messages"], ["C", "longest chain"]];
  const nodes = ["Focus the timeline, then "];
  keys.forEach(([key, what], i) => nodes.push(i ? ", " : "", make("kbd", {}, key), " " + what));
  nodes.push(". Pointer: drag to move, Ctrl and wheel, or a double click, to zoom.");
  return nodes;
}

function makeTools() {
  const tools = byId("timeline-tools");
  if (profile.steps.length > 1) {
    const choice = make("select", { "aria-label": "Step", onchange: () => select({ step: Number(choice.value) }) },
      ...profile.steps.map((step, i) => make("option", { value: i }, `${step.name}: ${timeText(step.ticks)}`)));
    tools.append(choice);
  }
  const button = (text, title, onclick) => tools.append(make("button", { type: "button", title, onclick }, text));
  button("+", "Zoom in", () => zoom(0.5));
  button("\u2212", "Zoom out", () => zoom(2));
  button("All", "The whole step", fit);
  const toggle = (key, text, possible) => possible && tools.append(make("button", { type: "button", "data-show": key,
    "aria-pressed": timeline.show[key], onclick: () => toggleShown(key) }, text));
  toggle("schedule", "Schedule", profile.mesh.pp > 1 && profile.steps[0].planned.length > 0);
  toggle("messages", "Messages", profile.steps[0].messages.length > 0);
  toggle("path", "Longest chain", profile.places.length > 1);
  button("Open rank", "Modules and kernels of the selected rank", () => toggleOpen(selection.rank));
}

function makeTimelineLegend() {
  const kinds = new Set(profile.steps.flatMap((step) => unpackStep(step).ranks.flatMap((rank) => rank.parts.map((part) => part.kind))));
  const entry = (tone, text) => legendEntry(`var(--${tone})`, text, `var(--${tone.replace("-strong", "")}-line)`);
  byId("timeline-legend").append(...Object.keys(partTones).filter((kind) => kinds.has(kind)).map((kind) => entry(partTones[kind], kindNames[kind])),
    entry("red-strong", "waits for a rank that comes later"), entry("red", "waits while data moves"),
    entry("orange-strong", "collective in the background"), entry("grey", "between these"));
}

function toggleShown(key) {
  timeline.show[key] = !timeline.show[key];
  for (const button of document.querySelectorAll(`[data-show="${key}"]`)) button.setAttribute("aria-pressed", timeline.show[key]);
  layOut();
}

function toggleOpen(rank) {
  if (!timeline.open.delete(rank)) timeline.open.add(rank);
  layOut();
}

// ---- the window of time ----

function setWindow(from, to) {
  const whole = currentStep().ticks, least = 20;
  const width = Math.min(Math.max(to - from, least), whole * 1.02);
  timeline.from = Math.max(-0.01 * whole, Math.min(from, whole * 1.01 - width));
  timeline.to = timeline.from + width;
  queueDraw();
}
function fit() { const whole = currentStep().ticks; setWindow(-0.004 * whole, 1.004 * whole); }
function zoom(factor, around = (timeline.from + timeline.to) / 2) {
  setWindow(around - (around - timeline.from) * factor, around + (timeline.to - around) * factor);
}
function pan(share) { const by = share * (timeline.to - timeline.from); setWindow(timeline.from + by, timeline.to + by); }

const plotWidth = () => timeline.canvas.clientWidth - labelWidth - 8;
const xOf = (time) => labelWidth + (time - timeline.from) / (timeline.to - timeline.from) * plotWidth();
const timeOf = (x) => timeline.from + (x - labelWidth) / plotWidth() * (timeline.to - timeline.from);

// ---- rows ----

/// Rows from top to bottom: those of the schedule, then the ranks; an open rank has lanes for modules and kernels.
function layOut() {
  const step = currentStep(), height = rowHeight(), background = height > 8 ? Math.max(2, Math.round(height / 5)) : 0;
  timeline.rows = [];
  let y = axisHeight;
  if (timeline.show.schedule && profile.mesh.pp > 1) {
    step.planned.forEach((parts, stage) => {
      for (const part of parts) part.type = "planned";
      timeline.rows.push({ y, height: Math.min(height, 16), label: `plan pp ${stage}`, lanes: [{ y, height: Math.min(height, 16), spans: parts }] });
      y += Math.min(height, 16) + 2;
    });
    y += 6;
  }
  step.ranks.forEach((rank, r) => {
    const row = { y, rank: r, height, label: `rank ${r}`, lanes: [
      { y, height, spans: rank.waits }, { y, height, spans: rank.parts }, { y: y + height, height: background, spans: rank.background }] };
    y += height + background;
    if (timeline.open.has(r)) {
      for (const spans of [...rank.modules, rank.kernels]) {
        y += 1;
        row.lanes.push({ y, height: laneHeight, spans });
        y += laneHeight;
      }
      y += 4;
    }
    y += height > 12 ? 4 : 1;
    timeline.rows.push(row);
  });
  timeline.canvas.style.height = y + scrollHeight + 4 + "px";
  queueDraw();
}

const rowOfRank = (rank) => timeline.rows.find((row) => row.rank === rank);

// ---- drawing ----

function queueDraw() {
  if (timeline.queued) return;
  timeline.queued = true;
  requestAnimationFrame(() => { timeline.queued = false; drawTimeline(); });
}

function drawTimeline() {
  const { canvas } = timeline, ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (width === 0) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "11px system-ui, Helvetica, Arial, sans-serif";
  g.textBaseline = "middle";
  drawAxis(g, width, height);
  g.save();
  g.beginPath();
  g.rect(labelWidth, axisHeight - 2, plotWidth(), height);
  g.clip();
  for (const row of timeline.rows) row.rank === undefined ? drawPlannedRow(g, row) : drawRankRow(g, row);
  if (timeline.show.messages) drawMessages(g);
  if (timeline.show.path) drawPath(g);
  drawSelected(g);
  g.restore();
  drawLabels(g);
  drawScroll(g, width, height);
}

function drawAxis(g, width, height) {
  g.fillStyle = colours.muted;
  g.strokeStyle = colours.rule;
  g.lineWidth = 1;
  g.textAlign = "center";
  const low = timeline.from / ticksPerMs, high = timeline.to / ticksPerMs;
  for (const mark of marksWithin(low, high, Math.max(2, Math.floor(width / 110)))) {
    const x = Math.round(xOf(mark * ticksPerMs)) + 0.5;
    if (x < labelWidth) continue;
    g.globalAlpha = 0.6;
    g.beginPath();
    g.moveTo(x, axisHeight - 4);
    g.lineTo(x, height - scrollHeight);
    g.stroke();
    g.globalAlpha = 1;
    g.fillText(`${Number(mark.toPrecision(7))} ms`, Math.min(x, width - 26), axisHeight / 2 - 1);
  }
}

/// Calls draw(span, x, width) for what is visible, but once for all that falls into one pixel.
function forVisible(spans, draw) {
  let painted = -1;
  for (let i = firstAfter(spans, timeline.from); i < spans.length && spans[i].begin < timeline.to; ++i) {
    const x = Math.max(xOf(spans[i].begin), labelWidth - 2), right = Math.min(xOf(spans[i].end), labelWidth + plotWidth() + 2);
    if (right - x < 0.7 && Math.floor(x) === painted) continue;
    painted = right - x < 0.7 ? Math.floor(x) : -1;
    draw(spans[i], x, Math.max(right - x, 0.7));
  }
}

function drawBox(g, x, y, width, height, fill, line) {
  g.fillStyle = fill;
  g.fillRect(x, y, width, height);
  if (line && width > 3 && height > 7) {
    g.strokeStyle = line;
    g.lineWidth = 1;
    g.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  }
}

function drawText(g, text, x, width, y) {
  if (width < 14) return;
  while (text && g.measureText(text).width > width - 5) text = text.length > 4 && width > 30 ? text.slice(0, -4) + "\u2026" : "";
  g.fillStyle = colours.ink;
  g.textAlign = "center";
  if (text) g.fillText(text, x + width / 2, y);
}

function drawParts(g, parts, y, height) {
  forVisible(parts, (part, x, width) => {
    const tone = partTones[part.kind] ?? "grey";
    const chunk = Math.floor(Math.max(part.stage, 0) / profile.mesh.pp) % 2;
    drawBox(g, x, y, width, height, colours[tone + (chunk ? "Strong" : "")], colours[tone + "Line"]);
  });
}

function drawNumbers(g, parts, y, height) {
  if (height < 10) return;
  forVisible(parts, (part, x, width) => { if (part.microBatch >= 0) drawText(g, String(part.microBatch), x, width, y + height / 2 + 0.5); });
}

function drawPlannedRow(g, row) {
  drawBox(g, xOf(0), row.y, xOf(currentStep().ticks) - xOf(0), row.height, colours.page);
  drawParts(g, row.lanes[0].spans, row.y, row.height);
  drawNumbers(g, row.lanes[0].spans, row.y, row.height);
}

function drawRankRow(g, row) {
  const rank = currentStep().ranks[row.rank], strip = Math.max(2, Math.round(row.height / 6));
  drawBox(g, xOf(rank.begin), row.y, xOf(rank.end) - xOf(rank.begin), row.height, colours.grey);
  drawParts(g, rank.parts, row.y, row.height);
  // A strip of the part stays visible above its waits.
  forVisible(rank.waits, (wait, x, width) => {
    const late = wait.last >= 0 ? Math.min(wait.late / Math.max(wait.end - wait.begin, 1), 1) * width : 0;
    drawBox(g, x, row.y + strip, width, row.height - strip, colours.red);
    if (late > 0) drawBox(g, x, row.y + strip, Math.max(late, 0.7), row.height - strip, colours.redStrong);
  });
  drawNumbers(g, rank.parts, row.y, row.height);
  const background = row.lanes[2];
  if (background.height) forVisible(background.spans, (_, x, width) => drawBox(g, x, background.y, width, background.height, colours.orangeStrong));
  for (const lane of row.lanes.slice(3)) {
    forVisible(lane.spans, (span, x, width) => {
      const tone = span.type === "kernel" ? "blue" : "purple";
      drawBox(g, x, lane.y, width, lane.height, colours[tone], colours[tone + "Line"]);
      drawText(g, span.type === "kernel" ? span.name.split(" ")[0] : span.name, x, width, lane.y + lane.height / 2 + 0.5);
    });
  }
}

/// Lines from the sender to the receiver; of very many, those of the selected rank.
function drawMessages(g) {
  let visible = currentStep().messages.filter((m) => m.arrived > timeline.from && m.sent < timeline.to);
  if (visible.length > 600) visible = visible.filter((m) => m.from === selection.rank || m.to === selection.rank);
  g.lineWidth = 1.2;
  for (const m of visible) {
    const from = rowOfRank(m.from), to = rowOfRank(m.to), down = to.y > from.y;
    const x0 = xOf(m.sent), y0 = from.y + (down ? from.height : 0), x1 = xOf(m.arrived), y1 = to.y + (down ? 0 : to.height);
    const own = m.from === selection.rank || m.to === selection.rank;
    g.globalAlpha = own ? 1 : 0.45;
    g.strokeStyle = g.fillStyle = colours.purpleLine;
    g.beginPath();
    g.moveTo(x0, y0);
    g.bezierCurveTo(x0 + 6, (y0 + y1) / 2, x1 - 6, (y0 + y1) / 2, x1, y1);
    g.stroke();
    g.beginPath();
    g.moveTo(x1, y1);
    g.lineTo(x1 - 3.5, y1 + (down ? -6 : 6));
    g.lineTo(x1 + 3.5, y1 + (down ? -6 : 6));
    g.fill();
  }
  g.globalAlpha = 1;
}

function drawPath(g) {
  for (const [style, width] of [[colours.page, 5], [colours.path, 2.5]]) {
    g.strokeStyle = style;
    g.lineWidth = width;
    g.lineJoin = "round";
    g.beginPath();
    for (const piece of currentStep().path) {
      const row = rowOfRank(piece.rank), y = row.y + row.height / 2;
      g.lineTo(xOf(piece.begin), y);
      g.lineTo(xOf(piece.end), y);
    }
    g.stroke();
  }
}

function laneOf(row, span) { return row?.lanes.find((lane) => lane.spans.includes(span)); }

function drawSelected(g) {
  const row = rowOfRank(timeline.spanRank), lane = timeline.span && laneOf(row, timeline.span);
  if (!lane) return;
  g.strokeStyle = colours.focus;
  g.lineWidth = 2;
  const x = xOf(timeline.span.begin);
  g.strokeRect(x - 1, lane.y - 1, Math.max(xOf(timeline.span.end) - x, 2) + 2, lane.height + 2);
}

function drawLabels(g) {
  g.textAlign = "left";
  let last = -99;
  for (const row of timeline.rows) {
    const chosen = row.rank === selection.rank;
    if (!chosen && row.y - last < 11) continue;
    if (chosen && row.y - last < 11) g.clearRect(0, last - 2, labelWidth - 2, 14);
    last = row.y;
    g.fillStyle = chosen ? colours.focus : row.rank === undefined ? colours.muted : colours.ink;
    g.font = `${chosen ? "600 " : ""}11px system-ui, Helvetica, Arial, sans-serif`;
    const tall = row.height >= 28 && row.rank !== undefined;
    g.fillText((row.rank === undefined ? "" : timeline.open.has(row.rank) ? "\u25be " : "\u25b8 ") + row.label, 6, row.y + row.height / 2 - (tall ? 6 : 0));
    if (!tall) continue;
    const place = profile.places[row.rank];
    g.font = "9.5px system-ui, Helvetica, Arial, sans-serif";
    g.fillStyle = colours.muted;
    g.fillText(["pp", "dp", "cp", "tp"].filter((axis) => profile.mesh[axis] > 1).map((axis) => `${axis[0]}${place[axis]}`).join(" "), 16, row.y + row.height / 2 + 7);
  }
}

/// Which part of the step is visible.
function drawScroll(g, width, height) {
  const whole = currentStep().ticks, y = height - scrollHeight + 2;
  if (timeline.to - timeline.from >= whole) return;
  drawBox(g, labelWidth, y, plotWidth(), 4, colours.grey);
  const x = labelWidth + Math.max(timeline.from, 0) / whole * plotWidth();
  drawBox(g, x, y, Math.max(6, (timeline.to - timeline.from) / whole * plotWidth()), 4, colours.greyLine);
}
