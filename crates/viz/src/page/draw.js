// What is shown: boxes, arrows and frames as SVG, written as text. One group of elements a box, found again by its code.
const graph = document.getElementById("graph"), view = document.getElementById("view");
const escapeText = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const mostBytes = nodes.reduce((most, node) => Math.max(most, node.bytes ?? 0), 1);
// Past so many boxes a page holds those near the window only; past as many in the window they are plain rectangles.
const MANY = 3000;
let scene, shownArrows, painted;

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
  const about = [kind, `${nodesIn[code - N]} ${nodesIn[code - N] === 1 ? "node" : "nodes"}`, bytes === undefined ? "" : `${inBytes(bytes)} saved`];
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
  painted = null;
  paint();
}

// ---- what is painted: all, or what is near the window
const everywhere = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
const meets = (a, b) => a.left <= b.right && b.left <= a.right && a.top <= b.bottom && b.top <= a.bottom;
const within = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
const extent = ({ x, y, w, h }) => ({ left: x, top: y, right: x + w, bottom: y + h });

// What an arrow reaches over.
function reach(arrow) {
  if (arrow.reach) return arrow.reach;
  const [start, end] = [extent(scene.boxes.get(arrow.from)), extent(scene.boxes.get(arrow.to))];
  const all = { left: Math.min(start.left, end.left), top: start.top, right: Math.max(start.right, end.right), bottom: end.bottom };
  for (const { code, x } of passes(arrow.a, arrow.b, scene)) {
    if (code === undefined) [all.left, all.right] = [Math.min(all.left, x), Math.max(all.right, x)];
  }
  return (arrow.reach = all);
}

// Rectangles that stand for many boxes: neighbours between which nothing could be seen are one.
function bars(boxes, scale) {
  const found = [];
  for (const { x, y, w, h } of boxes.sort((a, b) => a.y - b.y || a.x - b.x)) {
    const last = found.at(-1);
    if (last && last.y === y && x - last.right < 2 / scale) [last.right, last.h] = [x + w, Math.max(last.h, h)];
    else found.push({ x, y, right: x + w, h });
  }
  return found.map(({ x, y, right, h }) => `M${x.toFixed(0)},${y.toFixed(0)}H${right.toFixed(0)}v${h.toFixed(0)}H${x.toFixed(0)}z`).join("");
}

function paint() {
  const seen = scene.boxes.size > MANY ? windowOnScene() : everywhere;
  // What was painted for a wide window shows too little of each box in a narrow one.
  if (painted && within(seen, painted) && !(seen.scale > 1.2 * painted.scale)) return;
  const around = (room) => {
    const [w, h] = room ? [room * (seen.right - seen.left), room * (seen.bottom - seen.top)] : [0, 0];
    return { scale: undefined, left: seen.left - w, top: seen.top - h, right: seen.right + w, bottom: seen.bottom + h };
  };
  // Room on every side, so that small moves paint nothing; as much as there is.
  let near, boxes;
  for (const room of seen === everywhere ? [0] : [0.5, 0.2, 0]) {
    near = around(room);
    boxes = [...scene.boxes.values()].filter((box) => meets(extent(box), near));
    if (boxes.length <= MANY) break;
  }
  const plain = boxes.length > MANY && seen !== everywhere;
  if (plain) {
    near = { ...around(0.5), scale: seen.scale };
    boxes = [...scene.boxes.values()].filter((box) => meets(extent(box), near));
  }
  const frames = boxes.filter((box) => box.frame).map(drawBox).join("");
  boxes = boxes.filter((box) => !box.frame);
  if (plain) {
    view.innerHTML = `${frames}<path class="plain" d="${bars(boxes, seen.scale)}"/>`;
  } else {
    const line = (arrow, i) => (seen === everywhere || meets(reach(arrow), near) ? `<path class="edge" id="e${i}" d="${path(arrow, scene)}"/>` : "");
    view.innerHTML = frames + shownArrows.map(line).join("") + boxes.map(drawBox).join("");
  }
  painted = near;
  graph.dataset.shown = plain ? 0 : boxes.length;
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
      document.getElementById(`e${i}`)?.classList.add("lit");
      element(from === shown ? to : from)?.classList.add("near");
    });
  }
  if (selected !== null) element(shownAs(selected))?.classList.add("selected");
}

// ---- the legend, of what there is
const words = { input: "input", parameter: nodes.some((n) => n.bytes !== undefined) ? "leaf" : "parameter", buffer: "buffer", constant: "constant", op: "call", output: "output" };
document.getElementById("legend").innerHTML =
  Object.keys(words).filter((c) => nodes.some((n) => n.class === c)).map((c) => `<li class="${c}">${words[c]}</li>`).join("");
