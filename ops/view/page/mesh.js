// The mesh: a tile for each rank, coloured by what it does in a step; the groups of the rank that is pointed at.
const meshColours = [
  { key: "working", text: "works", tone: "blue-strong" },
  { key: "waiting", text: "waits", tone: "red-strong" },
  { key: "waited_for", text: "others wait for it", tone: "orange-strong" },
  { key: "critical", text: "on the longest chain", tone: "purple-strong" },
];
const meshTiles = [];

function drawMesh() {
  byId("mesh").hidden = false;
  const grid = byId("mesh-grid");
  if (profile.places.length > 24) grid.classList.add("small");
  const { pp } = profile.mesh;
  for (let stage = 0; stage < pp; ++stage) {
    const ranks = make("div", { class: "stage-ranks" });
    let group = null;
    profile.places.forEach((place, rank) => {
      if (place.pp !== stage) return;
      if (place.tp === 0) ranks.append(group = make("div", { class: "tp-group" }));
      group.append(meshTiles[rank] = meshTile(rank));
    });
    grid.append(make("div", { class: "stage" }, make("span", { class: "stage-name" }, pp > 1 ? `pp ${stage}` : ""), ranks));
  }
  const means = profile.means;
  for (const colour of meshColours) {
    if (!means.some((mean) => mean[colour.key] > 0)) continue;
    byId("mesh-colours").append(make("button", { type: "button", "data-key": colour.key, onclick: () => colourMesh(colour) }, colour.text));
  }
  if (profile.steps.length) colourMesh(meshColours[0]);
  selection.listeners.push(() => lightGroups(selection.rank));
  lightGroups(selection.rank);
}

function meshTile(rank) {
  const host = new Set(profile.hosts).size > 1 ? profile.hosts[rank] : "";
  return make("button", {
    type: "button", class: "rank", "data-rank": rank,
    "aria-label": `rank ${rank}, ${placeText(rank)}${host ? ", host " + host : ""}`,
    onmouseenter: () => lightGroups(rank, true), onmouseleave: () => lightGroups(selection.rank),
    onfocus: () => lightGroups(rank, true), onblur: () => lightGroups(selection.rank), onclick: () => select({ rank }),
  }, make("b", {}, `${rank}`), make("small", {}, placeText(rank).replaceAll("=", " ").replaceAll(", ", " \u00b7 ")),
    make("small", { class: "value" }, host), make("span", { class: "marks" }));
}

function colourMesh(colour) {
  const values = profile.means.map((mean) => mean[colour.key]);
  const most = Math.max(...values, 1e-9);
  const least = Math.min(...values);
  // Differences are what matters: equal ranks are pale, whatever the value.
  const low = most - least < 0.1 * most ? 0.75 * most : least;
  values.forEach((value, rank) => {
    const tile = meshTiles[rank];
    tile.style.setProperty("--heat-colour", `var(--${colour.tone})`);
    tile.style.setProperty("--heat", (0.85 * Math.max(0, value - low) / Math.max(most - low, 1e-9)).toFixed(3));
    const host = new Set(profile.hosts).size > 1 ? profile.hosts[rank] + " \u00b7 " : "";
    tile.querySelector(".value").textContent = host + msText(value);
  });
  for (const button of byId("mesh-colours").children)
    button.setAttribute("aria-pressed", button.dataset.key === colour.key);
}

/// `pointing`: the ranks that share no group with it are dimmed.
function lightGroups(rank, pointing = false) {
  byId("mesh-grid").classList.toggle("pointing", pointing);
  const groups = axes.filter((axis) => profile.mesh[axis] > 1).map((axis) => [axis, groupOf(rank, axis)]);
  meshTiles.forEach((tile, other) => {
    const shared = groups.filter(([, members]) => members.includes(other)).map(([axis]) => axis);
    tile.classList.toggle("self", other === rank);
    tile.classList.toggle("lit", other !== rank && shared.length > 0);
    tile.classList.toggle("dim", other !== rank && shared.length === 0);
    tile.querySelector(".marks").replaceChildren(...(other === rank ? [] : shared).map((axis) => {
      const mark = make("i");
      mark.style.background = `var(--${axisTones[axis]}-line)`;
      return mark;
    }));
  });
  byId("mesh-legend").replaceChildren(...groups.map(([axis, members]) =>
    legendEntry(`var(--${axisTones[axis]}-line)`, `${axis} group: ${listText(members)}`)));
  const mean = profile.means[rank];
  const host = profile.hosts[rank] ? ` on ${profile.hosts[rank]}` : "";
  let text = `Rank ${rank} (${placeText(rank)})${host}`;
  if (profile.steps.length)
    text += `: works ${msText(mean.working)} a step and waits ${msText(mean.waiting)}, of which ${msText(mean.for_ranks)} ` +
      `until another rank comes. Others wait ${msText(mean.waited_for)} for it.`;
  byId("mesh-details").textContent = text;
}

function listText(members) {
  return members.length > 16 ? members.slice(0, 16).join(" ") + ` \u2026 (${members.length} ranks)` : members.join(" ");
}
