// Draws all sections, from the top.
function drawHead() {
  document.title = data.title;
  document.querySelector("h1").textContent = data.title;
  const option = (key) => data.options.find(([name]) => name === key)?.[1];
  const mesh = profile ? axes.filter((axis) => profile.mesh[axis] > 1).map((axis) => `${axis}=${profile.mesh[axis]}`).join(",") || "one rank" : option("mesh");
  const parts = [option("model") && option("model") !== "custom" ? option("model") : null, option("layers") && `${option("layers")} layers of width ${option("width")}`,
    mesh, profile && profile.mesh.pp > 1 ? `${profile.pipeline}, ${profile.micro_batches} micro-batches` : null,
    profile && profile.zero > 0 ? `ZeRO ${profile.zero}` : null, option("dtype"), profile?.device ?? option("device"),
    profile && `${profile.places.length} rank${profile.places.length === 1 ? "" : "s"}`, option("global-batch") && `global batch ${option("global-batch")}`,
    data.metrics.step && `${data.metrics.step[data.metrics.step.length - 1]} steps`, profile?.predicted ? "predicted" : null];
  byId("subtitle").textContent = parts.filter(Boolean).join(" \u00b7 ");
}

function drawFindings() {
  const list = byId("finding-list");
  for (const finding of data.findings) {
    const words = finding.text.replace(/(\d) (%|ms|[KMG]iB)/g, "$1\u00a0$2"); // a number and its unit stay on one line
    const card = make("a", { class: finding.warning ? "card warning" : "card", href: "#" + finding.section },
      make("strong", {}, ...(finding.warning ? [make("em", {}, "\u25b2 ")] : []), finding.title), make("span", {}, words));
    if (finding.rank >= 0) card.addEventListener("click", () => select({ rank: finding.rank }));
    list.append(card);
  }
  if (!data.missing.length) return;
  const missing = byId("missing");
  missing.hidden = false;
  missing.append(make("strong", {}, "Not shown"), make("ul", {}, ...data.missing.map((text) => make("li", {}, text))));
}

function drawTexts() {
  for (const block of data.texts)
    byId("texts").append(make("section", {}, make("h2", {}, block.title), make("p", { class: "words" }, block.words), make("pre", { tabindex: 0 }, block.text)));
}

function drawOptions() {
  if (!data.options.length) return;
  byId("options").hidden = false;
  byId("option-table").append(table(["option", "value"], data.options));
}

function drawNavigation() {
  for (const section of document.querySelectorAll("main > section:not([hidden])"))
    document.querySelector("nav").append(make("a", { href: "#" + section.id }, section.querySelector("h2").textContent));
}

/// As the system says, light, dark; remembered where the browser allows it.
function setUpTheme() {
  const themes = ["auto", "light", "dark"], root = document.documentElement, button = byId("theme");
  let theme = "auto";
  try { theme = localStorage.getItem("trireme-theme") ?? "auto"; } catch { /* a page from a folder may have no storage */ }
  const apply = () => {
    root.dataset.theme = theme;
    button.textContent = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[theme];
    readColours();
    if (profile?.steps.length) queueDraw();
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("trireme-theme", theme); } catch { /* the same */ }
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

function drawAll() {
  setUpTheme();
  drawHead();
  const slow = data.findings.find((finding) => finding.rank >= 0);
  if (slow) selection.rank = slow.rank;
  if (profile) drawMesh();
  if (profile?.steps.length) {
    drawTimelineSection();
    drawMemorySection();
  }
  drawFindings();
  drawSettings();
  drawCurves();
  if (profile) drawPlacements();
  drawTexts();
  drawOptions();
  drawNavigation();
}
drawAll();
