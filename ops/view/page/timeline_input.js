// The timeline's pointer and keys: what is at a point, zooming, moving, selecting.

// ---- pointer ----

/// What is at a point of the canvas: {row, span}.
function hit(x, y) {
  for (const row of timeline.rows) {
    if (x < labelWidth) { if (y >= row.y && y < row.y + row.height) return { row, span: null }; continue; }
    for (const lane of row.lanes) {
      if (y < lane.y || y >= lane.y + lane.height) continue;
      const span = spanAt(lane.spans, timeOf(x), 2 * (timeline.to - timeline.from) / plotWidth());
      if (span) return { row, span };
    }
  }
  return null;
}

const pointers = new Map();
let moved = false, pinch = 0;
const pointerHandlers = {
  pointerdown(event) {
    pointers.set(event.pointerId, event.offsetX);
    moved = false;
    pinch = 0;
  },
  pointermove(event) {
    const before = pointers.get(event.pointerId);
    if (before === undefined) return hover(event);
    pointers.set(event.pointerId, event.offsetX);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()], distance = Math.max(Math.abs(a - b), 8);
      if (pinch) zoom(pinch / distance, timeOf((a + b) / 2));
      pinch = distance;
      moved = true;
    } else if (moved || Math.abs(event.offsetX - before) > 0) {
      if (!moved && event.pointerType === "mouse") timeline.canvas.setPointerCapture(event.pointerId);
      moved = true;
      pan((before - event.offsetX) / plotWidth());
      hideTooltip();
    }
  },
  pointerup(event) {
    pointers.delete(event.pointerId);
    if (moved) return;
    const found = hit(event.offsetX, event.offsetY);
    if (!found || found.row.rank === undefined) return;
    if (event.offsetX < labelWidth) toggleOpen(found.row.rank);
    selectSpan(found.row.rank, found.span);
    if (found.span && event.pointerType !== "mouse") showTooltip(describeSpan(found.span, found.row.rank), event.clientX, event.clientY);
  },
  pointercancel(event) { pointers.delete(event.pointerId); },
  pointerleave(event) { pointers.delete(event.pointerId); hideTooltip(); },
  dblclick(event) { zoom(0.4, timeOf(event.offsetX)); },
  wheel(event) {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 250), timeOf(event.offsetX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / plotWidth());
    else return;
    event.preventDefault();
  },
};

function hover(event) {
  const found = hit(event.offsetX, event.offsetY);
  if (!found?.span) return hideTooltip();
  const whose = found.row.rank === undefined ? "" : `Rank ${found.row.rank}: `;
  showTooltip(whose + describeSpan(found.span, found.row.rank), event.clientX, event.clientY);
}

function selectSpan(rank, span) {
  timeline.spanRank = rank;
  timeline.span = span;
  byId("timeline-details").textContent = span ? `Rank ${rank}: ${describeSpan(span, rank).replaceAll("\n", "; ")}` : `Rank ${rank} (${placeText(rank)})`;
  select({ rank });
}

// ---- keys ----

function onTimelineKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    "+": () => zoom(0.6, focusTime()), "=": () => zoom(0.6, focusTime()), "-": () => zoom(1 / 0.6, focusTime()), "0": fit,
    a: () => pan(-0.2), d: () => pan(0.2), s: () => toggleShown("schedule"), m: () => toggleShown("messages"), c: () => toggleShown("path"),
    ArrowLeft: () => moveSelection(-1), ArrowRight: () => moveSelection(1), ArrowUp: () => moveRank(-1), ArrowDown: () => moveRank(1),
    Enter: () => toggleOpen(selection.rank), Escape: hideTooltip,
  };
  const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

const focusTime = () => timeline.span ? (timeline.span.begin + timeline.span.end) / 2 : (timeline.from + timeline.to) / 2;

/// To the next box of the lane that the selected one is in; without one, to the first visible part.
function moveSelection(by) {
  const row = rowOfRank(selection.rank), lane = (timeline.span && laneOf(row, timeline.span)) || row.lanes[1];
  if (!lane.spans.length) return;
  const at = timeline.span ? lane.spans.indexOf(timeline.span) + by : firstAfter(lane.spans, timeline.from);
  const span = lane.spans[Math.max(0, Math.min(at, lane.spans.length - 1))];
  if (span.begin < timeline.from || span.end > timeline.to) {
    const width = timeline.to - timeline.from, middle = (span.begin + span.end) / 2;
    setWindow(middle - width / 2, middle + width / 2);
  }
  selectSpan(row.rank, span);
}

function moveRank(by) {
  const rank = Math.max(0, Math.min(selection.rank + by, profile.places.length - 1));
  selectSpan(rank, timeline.span ? spanAt(rowOfRank(rank).lanes[1].spans, focusTime(), 0) : null);
}
