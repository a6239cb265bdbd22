// The spans of a step, unpacked from lists of whole numbers: one object for each, with the text that describes it.
const exchangeFields = 8, partFields = 6;

const kindNames = { forward: "forward", backward: "backward", backward_input: "backward, input's part",
  backward_weight: "backward, weights' part", update: "gradient norm and update" };

function unpackParts(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length; i += partFields) {
    const [begin, duration, kind, stage, microBatch, working] = numbers.slice(i, i + partFields);
    parts.push({ type: "part", begin, end: begin + duration, kind: labels[kind], stage, microBatch, working });
  }
  return parts;
}

function unpackExchanges(numbers, type) {
  const exchanges = [];
  for (let i = 0; i < numbers.length; i += exchangeFields) {
    const [begin, duration, name, group, site, bytes, last, late] = numbers.slice(i, i + exchangeFields);
    exchanges.push({ type, begin, end: begin + duration, name: labels[name], group: labels[group], site: labels[site], bytes, last, late });
  }
  return exchanges;
}

function unpackModules(numbers) {
  const lanes = []; // by depth
  for (let i = 0; i < numbers.length; i += 4) {
    const [begin, duration, depth, name] = numbers.slice(i, i + 4);
    (lanes[depth] ??= []).push({ type: "module", begin, end: begin + duration, name: labels[name] });
  }
  for (let depth = 0; depth < lanes.length; ++depth) lanes[depth] ??= [];
  return lanes;
}

function unpackKernels(numbers) {
  const kernels = [];
  for (let i = 0; i < numbers.length; i += 3)
    kernels.push({ type: "kernel", begin: numbers[i], end: numbers[i] + numbers[i + 1], name: labels[numbers[i + 2]] });
  return kernels;
}

function unpackMessages(numbers) {
  const messages = [];
  for (let i = 0; i < numbers.length; i += 5)
    messages.push({ from: numbers[i], to: numbers[i + 1], sent: numbers[i + 2], arrived: numbers[i + 3], bytes: numbers[i + 4] });
  return messages;
}

function unpackPath(numbers) {
  const path = [];
  for (let i = 0; i < numbers.length; i += 3) path.push({ rank: numbers[i], begin: numbers[i + 1], end: numbers[i + 2] });
  return path;
}

/// Modules and kernels are unpacked when a rank is opened.
function unpackStep(step) {
  return step.unpacked ??= {
    ticks: step.ticks,
    ranks: step.ranks.map((rank) => ({
      begin: rank.begin, end: rank.end,
      parts: unpackParts(rank.parts),
      waits: unpackExchanges(rank.waits, "wait"),
      background: unpackExchanges(rank.background, "background"),
      get modules() { return this.unpackedModules ??= unpackModules(rank.modules ?? []); },
      get kernels() { return this.unpackedKernels ??= unpackKernels(rank.kernels ?? []); },
    })),
    messages: unpackMessages(step.messages),
    path: unpackPath(step.path),
    planned: step.planned.map(unpackParts),
  };
}

/// The first of `spans` that ends after `time`.
function firstAfter(spans, time) {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].end > time) high = middle; else low = middle + 1;
  }
  return low;
}

/// The span at `time`, or within `slack` of it.
function spanAt(spans, time, slack) {
  const next = firstAfter(spans, time - slack);
  return next < spans.length && spans[next].begin <= time + slack ? spans[next] : null;
}

/// Several lines: what it is, how long, and for communication bytes, place in the model and who came last.
function describeSpan(span, rank) {
  const duration = timeText(span.end - span.begin), at = `at ${timeText(span.begin)}`;
  if (span.type === "part") {
    const which = span.microBatch < 0 ? "" : ` of micro-batch ${span.microBatch}, stage ${span.stage}`;
    return `${kindNames[span.kind] ?? span.kind}${which}: ${duration}\nof which it works ${timeText(span.working)}; ${at}`;
  }
  if (span.type === "planned")
    return `the schedule: ${kindNames[span.kind] ?? span.kind} of micro-batch ${span.microBatch}, stage ${span.stage}`;
  if (span.type === "module" || span.type === "kernel") return `${span.name}: ${duration}\n${at}`;
  const what = span.name === "wait" ? "an exchange" : span.name === "recv" ? `a message of ${span.group}` : span.name === "send" ? `its message in ${span.group}` : span.name;
  let text = `${span.type === "wait" ? "waits for " : "in the background: "}${what}: ${duration}`;
  if (span.bytes > 0) text += `\n${bytesText(span.bytes)}`;
  if (span.site) text += `${span.bytes > 0 ? ", " : "\n"}called in ${span.site}`;
  text += `\n${at}`;
  if (span.type === "wait" && span.last >= 0) text += `\nrank ${span.last} came last, ${timeText(span.late)} after rank ${rank}`;
  return text;
}
