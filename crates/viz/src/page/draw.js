// What is shown: boxes, arrows and frames as SVG, written as text. One group of elements a box, found again by its code.
const graph = document.getElementById("graph"), view = document.getElementById("view");
const escapeText = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const mostBytes = Math.max(1, ...nodes.map((node) => node.bytes ?? 0));
let scene, shownArrows;

function fullName(g) {
  const names = [];
  for (; g; g = groups[g].parent) names.unshift(groups[g].name);
  return names.join(".");
}

function describe(code) {
  if (!isGroup(code)) {
    const { label, kind, bytes } = nodes[code];
    return [label, kind, bytes === undefined ? "" : `${inBytes(bytes)} saved`].filter(Boolean).join("\n");
  }
  const { kind, bytes } = groups[code - N];
  const about = [kind, `${nodesIn[code - N]} nodes`, bytes === undefined ? "" : `${inBytes(bytes)} saved`];
  return [fullName(code - N), about.filter(Boolean).join(", ")].join("\n");
}

function drawBox({ code, x, y, w, h, frame }) {
  const at = `id="c${code}" data-code="${code}" role="button" tabindex="-1" aria-label="${escapeText(describe(code).replaceAll("\n", ", "))}" transform="translate(${x.toFixed(1)},${y.toFixed(1)})"`;
  if (frame) {
    const { name, kind } = groups[code - N];
    return `<g class="frame" ${at} aria-expanded="true"><rect width="${w.toFixed(1)}" height="${h.toFixed(1)}" rx="10"/>` +
      `<text class="title" x="12" y="18">▾ ${escapeText(name)} <tspan class="kind">${escapeText(kind ?? "")}</tspan></text></g>`;
  }
  const [first, second] = lines(code), bytes = bytesOf(code), most = isGroup(code) ? groups[0].bytes : mostBytes;
  const texts = `<text class="title" x="14" y="${second ? 17 : h / 2 + 4}">${escapeText(first)}</text>` +
    (second ? `<text class="kind" x="14" y="33">${escapeText(second)}</text>` : "");
  const memory = bytes === undefined ? "" :
    `<rect class="memory" x="14" y="${h - 13}" width="${(30 * bytes / most).toFixed(1)}" height="7" rx="2"/><text class="bytes" x="48" y="${h - 6}">${inBytes(bytes)}</text>`;
  const rect = `<rect width="${w}" height="${h}" rx="7"/>`;
  if (isGroup(code)) return `<g class="closed" ${at} aria-expanded="false"><rect class="back" x="4" y="4" width="${w}" height="${h}" rx="7"/>${rect}${texts}${memory}</g>`;
  return `<g class="node ${nodes[code].class}" ${at}>${rect}<rect class="mark" x="1" y="7" width="4" height="${h - 14}" rx="2"/>${texts}${memory}</g>`;
}

function draw() {
  scene = place();
  shownArrows = arrows();
  const frames = [], boxes = [];
  for (const box of scene.boxes.values()) (box.frame ? frames : boxes).push(drawBox(box));
  const lines = shownArrows.map((arrow, i) => `<path class="edge" id="e${i}" d="${path(arrow, scene)}"/>`);
  view.innerHTML = frames.join("") + lines.join("") + boxes.join("");
  graph.dataset.shown = boxes.length;
  mark();
}

// ---- what stands out: found, selected, and near to what is selected or pointed at
let selected = null, pointed = null, found = [], foundAt = -1;
const element = (code) => document.getElementById(`c${code}`);

function mark() {
  for (const old of view.querySelectorAll(".hit, .near, .lit, .selected")) old.classList.remove("hit", "near", "lit", "selected");
  for (const code of new Set(found.map(shownAs))) element(code)?.classList.add("hit");
  for (const code of [selected, pointed].filter((c) => c !== null)) {
    const shown = shownAs(code);
    shownArrows.forEach(({ from, to }, i) => {
      if (from !== shown && to !== shown) return;
      document.getElementById(`e${i}`).classList.add("lit");
      element(from === shown ? to : from)?.classList.add("near");
    });
  }
  if (selected !== null) element(shownAs(selected))?.classList.add("selected");
}

// ---- the legend, of what there is
const words = { input: "input", parameter: nodes.some((n) => n.bytes !== undefined) ? "leaf" : "parameter", buffer: "buffer", constant: "constant", op: "call", output: "output" };
document.getElementById("legend").innerHTML =
  Object.keys(words).filter((c) => nodes.some((n) => n.class === c)).map((c) => `<li class="${c}">${words[c]}</li>`).join("");
