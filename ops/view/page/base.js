// What all parts of the page share: the data, the selection, texts of numbers, elements, colours.
const data = JSON.parse(document.getElementById("data").textContent);
const profile = data.profile;
const labels = profile ? profile.labels : [];

/// The step and the rank that all sections show. Each section registers what it does when they change.
const selection = { step: 0, rank: 0, listeners: [] };
function select(change) {
  Object.assign(selection, change);
  for (const listener of selection.listeners) listener(change);
}

const byId = (id) => document.getElementById(id);

/// An element with attributes and children; a text child is never read as HTML.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}
function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}
function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

// ---- numbers ----

const ticksPerMs = 1e4; // times in the data are whole tenths of a microsecond

function msText(ms) {
  const size = Math.abs(ms);
  if (size >= 1e5) return (ms / 1e3).toFixed(1) + " s";
  if (size >= 100) return ms.toFixed(1) + " ms";
  if (size >= 1) return ms.toFixed(2) + " ms";
  return (ms * 1e3).toFixed(size * 1e3 >= 10 ? 0 : 1) + " \u00b5s";
}
const timeText = (ticks) => msText(ticks / ticksPerMs);

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  return (unit === 0 ? bytes : bytes.toFixed(1)) + " " + units[unit];
}

function numberText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9) return Number((value / 1e9).toPrecision(4)) + "G";
  if (size >= 1e6) return Number((value / 1e6).toPrecision(4)) + "M";
  if (size >= 1e4) return Number((value / 1e3).toPrecision(4)) + "k";
  if (size < 1e-3) return Number(value.toPrecision(3)).toExponential();
  return String(Number(value.toPrecision(5)));
}

const percentText = (share) => (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";

/// Round numbers within low to high, at most `most` of them.
function marksWithin(low, high, most) {
  if (!(high > low)) return [low];
  let step = Math.pow(10, Math.floor(Math.log10((high - low) / most)));
  for (const factor of [1, 2, 5, 10]) {
    if ((high - low) / (step * factor) <= most) { step *= factor; break; }
  }
  const marks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) marks.push(i * step);
  return marks;
}

// ---- colours ----

let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = {};
  for (const tone of ["blue", "green", "orange", "purple", "red", "grey"]) {
    colours[tone] = style.getPropertyValue("--" + tone).trim();
    colours[tone + "Strong"] = style.getPropertyValue(`--${tone}-strong`).trim();
    colours[tone + "Line"] = style.getPropertyValue(`--${tone}-line`).trim();
  }
  for (const name of ["page", "panel", "rule", "ink", "muted", "focus", "path"])
    colours[name] = style.getPropertyValue("--" + name).trim();
}

const categoryTones = { parameters: "blue", gradients: "green", optimizer: "purple", activations: "orange",
  communication: "red", workspace: "grey", offloaded: "grey" };
const axisTones = { tp: "blue", dp: "green", pp: "purple", cp: "orange", ep: "red" };

function legendEntry(colour, text, border) {
  const box = make("i");
  box.style.background = colour;
  if (border) box.style.borderColor = border;
  return make("span", {}, box, text);
}

// ---- tooltip ----

const tooltip = byId("tooltip");
function showTooltip(text, x, y) {
  tooltip.textContent = text;
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  tooltip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tooltip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
}
function hideTooltip() { tooltip.hidden = true; }

// ---- ranks ----

const axes = ["pp", "dp", "cp", "tp", "ep"];
function placeText(rank) {
  const place = profile.places[rank];
  return axes.filter((axis) => ["dp", "tp", "pp"].includes(axis) || profile.mesh[axis] > 1)
    .map((axis) => `${axis}=${place[axis]}`).join(", ");
}
/// The ranks that differ from `rank` along `axis` only. ep is a part of data = dp x cp, so dp and cp follow from it.
function groupOf(rank, axis) {
  const own = profile.places[rank];
  const fixed = axis === "ep" ? ["pp", "tp", "edp"] : ["pp", "dp", "cp", "tp"].filter((other) => other !== axis);
  const members = [];
  profile.places.forEach((place, other) => {
    if (fixed.every((name) => place[name] === own[name])) members.push(other);
  });
  return members;
}
