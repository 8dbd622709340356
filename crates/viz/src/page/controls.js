// What people do: move, zoom, search, open and close, select; with pointer or keys.
const panel = document.getElementById("panel"), hint = document.getElementById("hint");
const search = document.getElementById("search"), foundText = document.getElementById("found");
const producers = nodes.map(() => []), consumers = nodes.map(() => []);
for (const [a, b] of edges) { consumers[a].push(b); producers[b].push(a); }

// ---- moving and zooming
let left = 0, top = 0, scale = 1;
function look(x, y, s, glide) {
  scale = Math.min(4, Math.max(0.02, s));
  [left, top] = [x, y];
  view.classList.toggle("gliding", Boolean(glide));
  view.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
  graph.classList.toggle("far", scale < 0.4);
  graph.dataset.zoom = scale.toFixed(3);
  paint();
}
// The part of the scene that can be seen.
function windowOnScene() {
  return { scale, left: -left / scale, top: -top / scale, right: (graph.clientWidth - left) / scale, bottom: (graph.clientHeight - top) / scale };
}
// Of what the panel leaves free.
const middle = () => ({ x: (graph.clientWidth - (panel.hidden || graph.clientWidth < 700 ? 0 : 350)) / 2, y: graph.clientHeight / 2 });
function zoom(factor, at = middle(), glide = true) {
  const s = Math.min(4, Math.max(0.02, scale * factor));
  look(at.x - (at.x - left) * s / scale, at.y - (at.y - top) * s / scale, s, glide);
}
function fit(least = 0) {
  const { clientWidth: w, clientHeight: h } = graph;
  const s = Math.max(least, Math.min(1.1, (w - 40) / scene.w, (h - 70) / scene.h));
  // What does not fit begins at its top.
  look((w - scene.w * s) / 2, Math.max(16, (h - scene.h * s) / 2 - 12), s, true);
}
function show(code) {
  const box = scene.boxes.get(shownAs(code)), { x, y } = middle();
  const s = Math.max(scale, 0.7), tall = box.frame ? 0 : box.h / 2;
  look(x - (box.x + box.w / 2) * s, y - (box.y + tall) * s, s, true);
}
function showIfOutside(code) {
  const box = scene.boxes.get(shownAs(code)), x = left + box.x * scale, y = top + box.y * scale;
  const inside = x > 10 && y > 10 && x + box.w * scale < graph.clientWidth - (panel.hidden ? 10 : 350) && y + Math.min(box.h, 40) * scale < graph.clientHeight - 10;
  if (!inside) show(code);
}

// ---- opening and closing
function redraw(keep) {
  const before = keep === undefined ? null : scene.boxes.get(shownAs(keep));
  draw();
  const after = keep === undefined ? null : scene.boxes.get(shownAs(keep));
  // What was opened or closed stays where it was on the screen.
  if (before && after) look(left + (before.x + before.w / 2 - after.x - after.w / 2) * scale, top + (before.y - after.y) * scale, scale);
}
function toggle(g) {
  if (!opened.delete(g)) opened.add(g);
  redraw(N + g);
  say(`${fullName(g)} ${opened.has(g) ? "expanded" : "collapsed"}`);
}
function reveal(code) {
  const closed = chain(code).filter((g) => !opened.has(g));
  closed.forEach((g) => opened.add(g));
  if (closed.length) redraw();
}
function openAll(yes) {
  opened.clear();
  groups.forEach((_, g) => { if (yes || g === 0) opened.add(g); });
  redraw();
  fit(0.3);
}
// Modules are opened from the outside in, while what is shown can still be read.
function openSome() {
  let count = members[0].length;
  for (let level = [0]; level.length; ) {
    level = level.flatMap((g) => members[g].filter(isGroup).map((code) => code - N));
    count += level.reduce((sum, g) => sum + members[g].length - 1, 0);
    if (count > 80) break;
    level.forEach((g) => opened.add(g));
  }
}

// ---- selecting
const say = (text) => { document.getElementById("said").textContent = text; };
function select(code) {
  selected = code;
  panel.hidden = code === null;
  if (code !== null) {
    fillPanel(code);
    say(describe(code).replaceAll("\n", ", "));
    graph.setAttribute("aria-activedescendant", `c${shownAs(code)}`);
  } else graph.removeAttribute("aria-activedescendant");
  mark();
}
function links(title, codes) {
  if (codes.length === 0) return "";
  const items = codes.slice(0, 40).map((c) => `<li><button data-go="${c}">${escapeText(shorten(nodes[c].details[0][1], 30))}</button></li>`);
  if (codes.length > 40) items.push(`<li>and ${codes.length - 40} more</li>`);
  return `<h3>${title}</h3><ul>${items.join("")}</ul>`;
}
function fillPanel(code) {
  const g = code - N, rows = (pairs) => `<dl>${pairs.map(([k, v]) => `<dt>${k}</dt><dd>${escapeText(v)}</dd>`).join("")}</dl>`;
  const body = isGroup(code)
    ? [`<h2>${escapeText(fullName(g))}</h2><p class="type">${escapeText(groups[g].kind ?? "")}</p>`,
       rows([["nodes", String(nodesIn[g])], ...(groups[g].bytes === undefined ? [] : [["saved", inBytes(groups[g].bytes)]])]),
       `<h3>Module</h3><ul><li><button data-toggle="${g}">${opened.has(g) ? "Collapse" : "Expand"}</button></li></ul>`]
    : [`<h2>${escapeText(nodes[code].label)}</h2><p class="type">${escapeText(nodes[code].kind ?? "")}</p>`,
       rows([...nodes[code].details, ...(nodes[code].group ? [["module", fullName(nodes[code].group)]] : [])]),
       links("From", producers[code]), links("To", consumers[code])];
  panel.innerHTML = `<button class="dismiss" aria-label="Clear selection">×</button>${body.join("")}`;
}
function go(code) {
  reveal(code);
  select(code);
  showIfOutside(code);
}

// ---- searching
const texts = nodes.map((node) => [node.label, node.kind ?? "", ...node.details.map(([, v]) => v)].join("\n").toLowerCase());
const groupTexts = groups.map((group, g) => (g ? `${fullName(g)}\n${group.kind ?? ""}`.toLowerCase() : ""));
function find() {
  const text = search.value.trim().toLowerCase();
  found = text === "" ? [] : [
    ...groupTexts.flatMap((t, g) => (t.includes(text) ? [N + g] : [])), ...texts.flatMap((t, n) => (t.includes(text) ? [n] : [])),
  ];
  foundAt = -1;
  foundText.textContent = text === "" ? "" : `${found.length} found`;
  mark();
}
function goFound(step) {
  if (found.length === 0) return;
  foundAt = (foundAt + step + found.length) % found.length;
  foundText.textContent = `${foundAt + 1} of ${found.length}`;
  reveal(found[foundAt]);
  select(found[foundAt]);
  show(found[foundAt]);
}
search.addEventListener("input", find);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") goFound(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") { search.value = ""; find(); graph.focus(); }
});

// ---- keys
function step(key) {
  const at = selected === null ? null : shownAs(selected);
  if (at === null) return shownArrows[0]?.from ?? scene.boxes.keys().next().value;
  if (key === "ArrowDown") return shownArrows.find(({ from }) => from === at)?.to;
  if (key === "ArrowUp") return shownArrows.find(({ to }) => to === at)?.from;
  const row = levels[around(at)].rows[rowOf[at]].filter((code) => code >= 0);
  return row[row.indexOf(at) + (key === "ArrowRight" ? 1 : -1)];
}
const keys = {
  "/": () => { search.focus(); search.select(); }, "?": () => document.getElementById("keys").showModal(),
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(), o: () => openAll(true), c: () => openAll(false),
  Escape: () => { select(null); search.value = ""; find(); },
  Enter: () => {
    if (selected === null) return;
    const at = shownAs(selected), g = isGroup(at) ? at - N : around(at);
    if (!g) return;
    toggle(g);
    select(N + g);
    showIfOutside(N + g);
  },
};
keys[" "] = keys.Enter;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, dialog, button")) return;
  if (event.key.startsWith("Arrow")) {
    const next = step(event.key);
    if (next !== undefined) { select(next); showIfOutside(next); }
  } else if (keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]) {
    keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]();
  } else return;
  event.preventDefault();
});

// ---- pointer
const codeAt = (target) => { const e = target.closest?.("[data-code]"); return e ? Number(e.dataset.code) : null; };
let drag = null;
graph.addEventListener("pointerdown", (event) => {
  if (event.button === 0) drag = { x: event.clientX, y: event.clientY, left, top, moved: false };
});
window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
  drag.moved ||= Math.hypot(dx, dy) > 4;
  if (drag.moved) { graph.classList.add("dragging"); look(drag.left + dx, drag.top + dy, scale); }
});
window.addEventListener("pointerup", (event) => {
  const clicked = drag && !drag.moved;
  graph.classList.remove("dragging");
  drag = null;
  if (clicked && graph.contains(event.target)) select(codeAt(event.target));
});
graph.addEventListener("dblclick", (event) => {
  const code = codeAt(event.target);
  if (code !== null && isGroup(code)) { toggle(code - N); select(code); }
});
graph.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = graph.getBoundingClientRect(), turn = event.deltaMode ? 30 * event.deltaY : event.deltaY;
  if (event.shiftKey) look(left - turn - event.deltaX, top, scale);
  else zoom(Math.exp(-turn / 400), { x: event.clientX - box.left, y: event.clientY - box.top }, false);
}, { passive: false });
graph.addEventListener("pointerover", (event) => {
  pointed = drag ? null : codeAt(event.target);
  hint.hidden = pointed === null;
  hint.textContent = pointed === null ? "" : describe(pointed);
  mark();
});
graph.addEventListener("pointerleave", () => { pointed = null; hint.hidden = true; mark(); });
graph.addEventListener("pointermove", (event) => {
  const box = graph.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  hint.style.left = `${Math.min(x + 14, box.width - hint.offsetWidth - 8)}px`;
  hint.style.top = `${y + 18 + hint.offsetHeight > box.height ? y - 12 - hint.offsetHeight : y + 18}px`;
});
panel.addEventListener("click", ({ target }) => {
  const { go: code, toggle: g } = target.dataset;
  if (target.classList.contains("dismiss")) { select(null); graph.focus(); }
  if (code !== undefined) go(Number(code));
  if (g !== undefined) { toggle(Number(g)); select(N + Number(g)); }
});
const press = (id, action) => document.getElementById(id).addEventListener("click", action);
press("close-all", () => openAll(false));
press("open-all", () => openAll(true));
press("zoom-in", () => zoom(1.25));
press("zoom-out", () => zoom(0.8));
press("fit", () => fit());
press("help", () => document.getElementById("keys").showModal());
press("theme", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
});
for (const id of ["close-all", "open-all"]) document.getElementById(id).disabled = groups.length === 1;

openSome();
draw();
fit(0.65);
