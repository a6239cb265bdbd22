// Memory: the peak of each rank as a bar, and the selected rank over the step as an area for each category.
const usedCategories = () => profile.categories.map((name, index) => ({ name, index })).filter(({ index }) =>
  profile.steps.some((step) => step.ranks.some((rank) => {
    for (let i = 1 + index; i < rank.memory.length; i += 1 + profile.categories.length) if (rank.memory[i] > 0) return true;
    return false;
  })));

function unpackMemory(numbers) {
  const samples = [], width = 1 + profile.categories.length;
  for (let i = 0; i < numbers.length; i += width) {
    const bytes = numbers.slice(i + 1, i + width);
    samples.push({ time: numbers[i], bytes, total: bytes.reduce((sum, x) => sum + x, 0) });
  }
  return samples;
}
const peakOf = (samples) => samples.reduce((most, sample) => sample.total > most.total ? sample : most, samples[0]);

function drawMemorySection() {
  if (!profile.steps.some((step) => step.ranks.some((rank) => rank.memory.length))) return;
  byId("memory").hidden = false;
  const categories = usedCategories();
  byId("memory-legend").append(...categories.map(({ name }) => legendEntry(`var(--${categoryTones[name]}-strong)`, name)));
  const draw = () => { drawMemoryBars(categories); drawMemoryChart(categories); };
  selection.listeners.push(draw);
  draw();
}

function drawMemoryBars(categories) {
  const peaks = profile.steps[selection.step].ranks.map((rank) => peakOf(unpackMemory(rank.memory)));
  const most = Math.max(...peaks.map((peak) => peak?.total ?? 0), 1);
  byId("memory-bars").replaceChildren(...peaks.map((peak, rank) => {
    const stack = make("span", { class: "stack" });
    for (const { name, index } of categories) {
      const piece = make("i");
      piece.style.background = `var(--${categoryTones[name]}-strong)`;
      piece.style.width = 100 * (peak?.bytes[index] ?? 0) / most + "%";
      stack.append(piece);
    }
    return make("button", { type: "button", class: "bar", "aria-pressed": rank === selection.rank, onclick: () => select({ rank }) },
      make("span", {}, `rank ${rank}`), stack, make("span", {}, bytesText(peak?.total ?? 0)));
  }));
}

function drawMemoryChart(categories) {
  const step = profile.steps[selection.step], samples = unpackMemory(step.ranks[selection.rank].memory);
  const chart = byId("memory-chart");
  chart.replaceChildren();
  if (!samples.length) return;
  const width = 760, height = 300, left = 62, top = 10, bottom = 24, right = 8;
  const peak = peakOf(samples), unit = peak.total >= 2 ** 30 ? 2 ** 30 : 2 ** 20, most = peak.total * 1.05;
  const x = (time) => left + time / step.ticks * (width - left - right);
  const y = (bytes) => top + (1 - bytes / most) * (height - top - bottom);
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
    "aria-label": `Memory of rank ${selection.rank} over ${step.name}; at most ${bytesText(peak.total)}` });
  for (const mark of marksWithin(0, most / unit, 6)) {
    svg.append(makeSvg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark * unit), y2: y(mark * unit) }),
      makeSvg("text", { x: left - 6, y: y(mark * unit) + 4, "text-anchor": "end" }, `${numberText(mark)} ${unit === 2 ** 30 ? "GiB" : "MiB"}`));
  }
  const base = samples.map(() => 0);
  for (const { name, index } of categories) {
    let above = "", below = "";
    samples.forEach((sample, i) => {
      const begin = x(sample.time).toFixed(1), end = x(i + 1 < samples.length ? samples[i + 1].time : step.ticks).toFixed(1);
      const low = y(base[i]).toFixed(1), high = y(base[i] += sample.bytes[index]).toFixed(1);
      above += `${i ? "L" : "M"}${begin} ${high}L${end} ${high}`;
      below = `L${end} ${low}L${begin} ${low}` + below;
    });
    svg.append(makeSvg("path", { d: above + below + "Z", fill: `var(--${categoryTones[name]}-strong)` }));
  }
  for (const mark of marksWithin(0, step.ticks / ticksPerMs, 8))
    svg.append(makeSvg("text", { x: x(mark * ticksPerMs), y: height - 6, "text-anchor": "middle" }, `${Number(mark.toPrecision(6))} ms`));
  svg.append(makeSvg("circle", { cx: x(peak.time), cy: y(peak.total), r: 4, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }));
  const cross = makeSvg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(cross);
  const read = (time) => {
    let at = samples.findIndex((sample) => sample.time > time);
    return samples[Math.max(0, (at < 0 ? samples.length : at) - 1)];
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), place = (event.clientX - box.left) / box.width * width;
    if (place < left) return;
    const time = (place - left) / (width - left - right) * step.ticks, sample = read(time);
    setAttributes(cross, { x1: place, x2: place, visibility: "visible" });
    showTooltip(`${timeText(Math.min(time, step.ticks))}: ${bytesText(sample.total)}\n` +
      categories.map(({ name, index }) => `${name} ${bytesText(sample.bytes[index])}`).reverse().join("\n"), event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", () => { setAttributes(cross, { visibility: "hidden" }); hideTooltip(); });
  chart.append(svg);
  byId("memory-caption").textContent = `Rank ${selection.rank} (${placeText(selection.rank)}) in ${step.name}: most, ` +
    `${bytesText(peak.total)}, after ${timeText(peak.time)}: ` +
    categories.map(({ name, index }) => `${name} ${bytesText(peak.bytes[index])}`).join(", ") + ".";
}
