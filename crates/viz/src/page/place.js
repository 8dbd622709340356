// Where boxes stand. Rows and their order are given; which modules are open decides how large everything is, and so where.
// Items are named by codes: a node by its number, a module as the number of nodes plus its own.
const { nodes, edges, groups, levels } = JSON.parse(document.getElementById("data").textContent);
const N = nodes.length;
const opened = new Set([0]);
const isGroup = (code) => code >= N;
const around = (code) => (isGroup(code) ? groups[code - N].parent : nodes[code].group);
const members = groups.map((_, g) => levels[g].rows.flat().filter((code) => code >= 0));
// In which row of its group an item stands.
const rowOf = [];
levels.forEach((level) => level.rows.forEach((row, r) => row.forEach((code) => { if (code >= 0) rowOf[code] = r; })));
// Parents come before their children.
const nodesIn = groups.map(() => 0);
nodes.forEach((node) => nodesIn[node.group]++);
for (let g = groups.length - 1; g > 0; g--) nodesIn[groups[g].parent] += nodesIn[g];

const GAP = 22, ROW = 34, LANE = 10, PAD = 16, HEAD = 28;
const shorten = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const inBytes = (n) => {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, n)) / 10)), value = n / 1024 ** power;
  return `${value.toFixed(power && value < 10 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};
// The lines of a box.
function lines(code) {
  if (!isGroup(code)) return [shorten(nodes[code].label, 30), shorten(nodes[code].kind ?? "", 34)];
  const { name, kind } = groups[code - N];
  return [shorten(`▸ ${name}`, 32), shorten([kind, `${nodesIn[code - N]} ${nodesIn[code - N] === 1 ? "node" : "nodes"}`].filter(Boolean).join(" · "), 36)];
}
const bytesOf = (code) => (isGroup(code) ? groups[code - N] : nodes[code]).bytes;

function boxSize(code) {
  const [first, second] = lines(code), bytes = bytesOf(code);
  const wide = Math.max(7.3 * first.length, 6.7 * second.length, bytes === undefined ? 0 : 6.4 * inBytes(bytes).length + 40);
  return { w: Math.round(Math.max(64, wide + 26)), h: (second ? 42 : 28) + (bytes === undefined ? 0 : 15) };
}

// Centres as near to `wanted` as they can be, in order and with room for every width: pools of neighbours that push each
// other are placed together.
function settle(cells, wanted, weight) {
  let offset = 0;
  const pools = [];
  cells.forEach((cell, i) => {
    if (i > 0) offset += (cells[i - 1].w + cell.w) / 2 + GAP;
    pools.push({ sum: weight[i] * (wanted[i] - offset), weight: weight[i], count: 1 });
    while (pools.length > 1) {
      const last = pools.at(-1), before = pools.at(-2);
      if (before.sum / before.weight <= last.sum / last.weight) break;
      pools.pop();
      before.sum += last.sum; before.weight += last.weight; before.count += last.count;
    }
    cell.offset = offset;
  });
  let i = 0;
  for (const pool of pools) for (let k = 0; k < pool.count; k++, i++) cells[i].x = pool.sum / pool.weight + cells[i].offset;
}

// Lays out an open group; positions are relative to its corner. Its layout is returned with its size.
function arrange(g) {
  const { rows, links } = levels[g], inner = new Map();
  const table = rows.map((row) => row.map((code) => {
    if (code < 0) return { code, w: LANE, h: 0, x: 0 };
    if (isGroup(code) && opened.has(code - N)) inner.set(code, arrange(code - N));
    return { code, ...(inner.get(code) ?? boxSize(code)), x: 0 };
  }));
  const above = table.map((row) => row.map(() => [])), below = table.map((row) => row.map(() => []));
  for (const [r, i, j] of links) { below[r][i].push(table[r + 1][j]); above[r + 1][j].push(table[r][i]); }
  const pass = (r, near) => settle(table[r],
    table[r].map((cell, i) => (near[r][i].length ? near[r][i].reduce((sum, c) => sum + c.x, 0) / near[r][i].length : cell.x)),
    // Lanes pull harder: a long arrow is better straight.
    table[r].map((cell, i) => (near[r][i].length ? (cell.code < 0 ? 4 : 1) : 0.05)));
  table.forEach((row) => settle(row, row.map(() => 0), row.map(() => 1)));
  for (let sweep = 0; sweep < 3; sweep++) {
    for (let r = 1; r < table.length; r++) pass(r, above);
    for (let r = table.length - 2; r >= 0; r--) pass(r, below);
  }
  let y = g ? HEAD : PAD, left = Infinity, right = -Infinity;
  for (const row of table) {
    const tall = row.reduce((most, cell) => Math.max(most, cell.h), 0);
    for (const cell of row) {
      cell.y = y + (cell.code < 0 ? 0 : (tall - cell.h) / 2);
      if (cell.code < 0) cell.h = tall;
      [cell.top, cell.bottom] = [y, y + tall];
      left = Math.min(left, cell.x - cell.w / 2);
      right = Math.max(right, cell.x + cell.w / 2);
    }
    y += tall + ROW;
  }
  const title = g ? 7.3 * (groups[g].name.length + (groups[g].kind ?? "").length + 6) : 0;
  const w = Math.max(right - left + 2 * PAD, title + 2 * PAD), shift = (w - (right - left)) / 2 - left;
  table.forEach((row) => row.forEach((cell) => { cell.x += shift; }));
  return { w, h: y - ROW + PAD, table, inner };
}

// Everything that is to be seen, in absolute positions: `boxes` by code, with the ends of their row, and `lanes` by group,
// source and row.
function place() {
  const boxes = new Map(), lanes = new Map();
  const put = (g, { table, inner }, left, top) => {
    const mine = new Map();
    lanes.set(g, mine);
    table.forEach((row, r) => row.forEach(({ code, x, y, w, h, ...ends }) => {
      if (code < 0) {
        const source = levels[g].sources[-1 - code];
        if (!mine.has(source)) mine.set(source, new Map());
        mine.get(source).set(r, { x: left + x, top: top + y, bottom: top + y + h });
        return;
      }
      boxes.set(code, { code, x: left + x - w / 2, y: top + y, w, h, top: top + ends.top, bottom: top + ends.bottom, frame: inner.has(code) });
      if (inner.has(code)) put(code - N, inner.get(code), left + x - w / 2, top + y);
    }));
  };
  const all = arrange(0);
  put(0, all, 0, 0);
  return { boxes, lanes, w: all.w, h: all.h };
}
