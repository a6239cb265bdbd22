// How the weights of the first block, and those outside the blocks, are cut over the mesh; and the block's forward.
const blockPattern = /^(.*?\.?)(\d+)\./; // "blocks.0."

function drawPlacements() {
  if (!profile.weights.length) return;
  byId("placements").hidden = false;
  const first = profile.weights.find((weight) => blockPattern.test(weight.name));
  const block = first ? first.name.match(blockPattern)[0] : null;
  const shown = profile.weights.filter((weight) => !blockPattern.test(weight.name) || weight.name.startsWith(block));
  byId("placement-words").append(...placementWords(block).map((text) => make("p", {}, text)));
  byId("placement-table").append(make("table", {},
    make("thead", {}, make("tr", {}, ...["weight", "whole", "cut", "on a rank", "how"].map((head) => make("th", {}, head)))),
    make("tbody", {}, ...shown.map((weight) => make("tr", {}, make("td", {}, make("code", {}, weight.name)),
      make("td", {}, make("code", {}, shapeText(weight.shape))), make("td", {}, cutPicture(weight)),
      make("td", {}, make("code", {}, shapeText(localShape(weight)))), make("td", {}, cutWords(weight)))))));
  drawForward(block);
}

const shapeText = (shape) => `[${shape.join(", ")}]`;
/// The dim of "S(1)", or -1.
const shardedDim = (placement) => placement.startsWith("S(") ? Number(placement.slice(2, -1)) : -1;
/// [axis, dim] of the axes of more than one rank that cut it.
const cutsOf = (weight) => [["tp", weight.tp], ["ep", weight.ep]].map(([axis, placement]) => [axis, shardedDim(placement)])
  .filter(([axis, dim]) => dim >= 0 && dim < weight.shape.length && profile.mesh[axis] > 1);

function localShape(weight) {
  const shape = [...weight.shape];
  for (const [axis, dim] of cutsOf(weight)) shape[dim] /= profile.mesh[axis];
  return shape;
}

function dimName(weight, dim) {
  const dims = weight.shape.length;
  if (weight.name.endsWith(".bias")) return "its elements";
  if (/(^|\.)(wte|wpe|embed)/.test(weight.name) && dim === 0) return "rows, one for each token,";
  if (dims >= 2 && dim === dims - 2) return "rows, its outputs,";
  if (dims >= 2 && dim === dims - 1) return "columns, its inputs,";
  return dims === 1 ? "elements" : `dim ${dim}`;
}

function cutWords(weight) {
  const parts = cutsOf(weight).map(([axis, dim]) => `${dimName(weight, dim)} are divided over ${profile.mesh[axis]} ranks of ${axis}`);
  if (profile.mesh.tp > 1 && shardedDim(weight.tp) < 0)
    parts.push(weight.tp === "R" ? "each tp rank has all of it and uses it on its part of the positions, so its gradient is summed over tp"
      : "each tp rank has all of it and finds the whole gradient");
  const copies = shardedDim(weight.ep) >= 0 ? profile.mesh.edp : profile.mesh.dp * profile.mesh.cp;
  if (copies > 1) parts.push(zeroWords(copies, shardedDim(weight.ep) >= 0 ? "edp" : profile.mesh.cp > 1 ? "dp x cp" : "dp"));
  const text = parts.join("; ") || "whole, on one rank";
  return text[0].toUpperCase() + text.slice(1) + ".";
}

function zeroWords(copies, axis) {
  const sum = `the ${copies} ranks of ${axis} have other samples, and sum its gradient`;
  return [sum, `${sum}; each keeps 1/${copies} of its optimizer state`, `each of the ${copies} ranks of ${axis} keeps 1/${copies} of its gradient and optimizer state`,
    `each of the ${copies} ranks of ${axis} keeps 1/${copies} of it, and gathers the rest for a forward and a backward`][profile.zero] ?? sum;
}

function placementWords(block) {
  const words = [`The weights of ${block ? `block ${block.slice(0, -1)} and of what is outside the blocks` : "the model"}, as the program has placed them. ` +
    "A matrix is [outputs, inputs]. The other blocks are cut alike."];
  if (profile.mesh.pp > 1) {
    const stages = [];
    for (const weight of profile.weights) (stages[weight.pp] ??= new Set()).add(weight.name.match(blockPattern)?.[0].slice(0, -1) ?? weight.name.split(".")[0]);
    words.push(stages.map((names, pp) => `pp ${pp} has ${[...names].join(", ")}`).join("; ") + ".");
  }
  if (profile.sequence_parallel) words.push("Sequence parallelism: between the matrix products each tp rank has its part of the positions.");
  return words;
}

/// A rectangle of the tensor's form, with a shade for each part.
function cutPicture(weight) {
  const rows = weight.shape.length > 1 ? weight.shape[weight.shape.length - 2] : 1, columns = weight.shape[weight.shape.length - 1] ?? 1;
  const ratio = Math.sqrt(rows / columns), width = Math.min(96, Math.max(20, 46 / ratio)), height = weight.shape.length > 1 ? Math.min(60, Math.max(12, 46 * ratio)) : 9;
  const svg = makeSvg("svg", { width: width + 2, height: height + 2, viewBox: `-1 -1 ${width + 2} ${height + 2}`, role: "img",
    "aria-label": cutsOf(weight).map(([axis, dim]) => `cut over ${axis} along dim ${dim}`).join(", ") || "not cut" });
  svg.append(makeSvg("rect", { width, height, fill: "var(--grey)", stroke: "var(--grey-line)" }));
  const [cut] = cutsOf(weight);
  if (cut) {
    const [axis, dim] = cut, parts = profile.mesh[axis], shown = Math.min(parts, 16), across = dim === weight.shape.length - 1;
    const tone = axisTones[axis];
    for (let i = 0; i < shown; ++i) {
      const size = (across ? width : height) / shown;
      svg.append(makeSvg("rect", { x: across ? i * size : 0, y: across ? 0 : i * size, width: across ? size : width, height: across ? height : size,
        fill: `var(--${tone}${i % 2 ? "-strong" : ""})`, stroke: `var(--${tone}-line)`, "stroke-width": 0.8 }));
    }
  }
  return svg;
}

const lineWords = { module: "", kernel: "kernel", collective: "collective", placement: "placement" };

function drawForward(block) {
  if (!profile.forward.length) return;
  const lines = profile.forward.map((line) => {
    const what = make("span", { class: "what" }, line.name);
    const row = make("div", { class: `line ${line.kind}`, title: lineWords[line.kind] }, what, make("span", { class: "detail" }, line.detail));
    row.style.paddingLeft = line.depth * 1.2 + "rem";
    return row;
  });
  byId("forward").append(make("h3", {}, `The forward of ${block ? block.slice(0, -1) : "a block"} on rank 0`),
    make("p", { class: "words" }, "In order: modules, kernels with the shapes of their tensors, collectives, and moves of an activation from one placement " +
      "to another, with its shape before the move. R: replicated, with other uses on each rank; I: replicated, and used alike; P: a part of a sum; S(d): sharded on dim d."),
    make("div", { class: "legend" }, legendEntry("var(--blue-line)", "kernel"), legendEntry("var(--purple-line)", "move between placements"), legendEntry("var(--red-line)", "collective")),
    make("div", { class: "list" }, ...lines));
}
