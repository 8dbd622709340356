// How arrows run: down through the lanes of every group that they pass.

// What is shown of an item: itself, or the outermost closed module around it.
function shownAs(code) {
  let shown = code;
  for (let g = around(code); g !== null; g = groups[g].parent) if (!opened.has(g)) shown = N + g;
  return shown;
}

// The groups around an item, innermost first.
function chain(code) {
  const list = [];
  for (let g = around(code); g !== null; g = groups[g].parent) list.push(g);
  return list;
}

// The places that an arrow passes, top to bottom: the ends of the rows that it leaves, and lanes. A box is
// left straight down, wherever the arrow is.
function passes(from, to, { boxes, lanes }) {
  const outside = chain(from), inside = chain(to), common = outside.find((g) => inside.includes(g));
  const found = [];
  const take = (g, source, first, last) => {
    const mine = lanes.get(g)?.get(source);
    for (let r = first; mine && r <= last; r++) if (mine.has(r)) found.push(mine.get(r));
  };
  const leave = (item) => { if (boxes.has(item)) found.push(boxes.get(item)); };
  let item = from;
  leave(item);
  for (const g of outside) {
    if (g === common) break;
    take(g, item, rowOf[item] + 1, levels[g].rows.length - 1);
    item = N + g;
    leave(item);
  }
  const way = [to, ...inside.slice(0, inside.indexOf(common)).map((g) => N + g)];
  const top = way.pop();
  take(common, item, rowOf[item] + 1, rowOf[top] - 1);
  for (let g = top - N; way.length > 0; ) {
    const next = way.pop();
    take(g, from, 0, rowOf[next] - 1);
    g = next - N;
  }
  return found;
}

// Arrows between what is shown, each once, with the edges they stand for.
function arrows() {
  const found = new Map();
  for (const [a, b] of edges) {
    const from = shownAs(a), to = shownAs(b);
    if (from === to) continue;
    const key = from * (N + groups.length) + to;
    if (found.has(key)) found.get(key).count++;
    else found.set(key, { from, to, a, b, count: 1 });
  }
  return [...found.values()];
}

function path({ from, to, a, b }, scene) {
  const start = scene.boxes.get(from), end = scene.boxes.get(to);
  let [x, y] = [start.x + start.w / 2, start.y + start.h];
  let d = `M${x.toFixed(1)},${y.toFixed(1)}`;
  const curve = (nx, ny) => {
    const bend = Math.max(10, Math.abs(ny - y) / 2);
    d += `C${x.toFixed(1)},${(y + bend).toFixed(1)} ${nx.toFixed(1)},${(ny - bend).toFixed(1)} ${nx.toFixed(1)},${ny.toFixed(1)}`;
    [x, y] = [nx, ny];
  };
  const straight = (ny) => { if (ny > y) { d += `V${ny.toFixed(1)}`; y = ny; } };
  for (const passed of passes(a, b, scene)) {
    const isLane = passed.code === undefined;
    // A closed module hides the lanes within it; those that remain lie below where the arrow is.
    if (isLane && passed.top < y) continue;
    if (isLane) curve(passed.x, passed.top);
    straight(passed.bottom);
  }
  // Boxes in a row differ in height: the arrow turns above the row.
  curve(end.x + end.w / 2, end.top > y ? end.top : end.y);
  straight(end.y);
  return d;
}
