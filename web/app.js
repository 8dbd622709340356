// The page: shows what the worker reports, and tells it what people do. Computes nothing but the picture of a drawing.

const $ = (id) => document.getElementById(id);
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const ask = (kind, data = {}, transfer = []) => worker.postMessage({ kind, ...data }, transfer);
const SEED = 0;

const state = { losses: [], accuracies: [], perEpoch: 45, training: false, ready: false, clock: [], testCount: 0, sampleAt: 0 };

const settings = () => ({ seed: SEED, batch: Number($("batch").value), lr: Number($("lr").value) });
const percent = (x) => `${(100 * x).toFixed(1)}%`;

// ---- training

function showTraining(on) {
  state.training = on;
  $("start").textContent = on ? "Pause" : state.losses.length ? "Train on" : "Train";
  document.documentElement.dataset.training = on;
}

function startOver() {
  showTraining(false);
  for (const id of ["start", "reset", "save", "own", "sample"]) $(id).disabled = true;
  state.ready = false;
  Object.assign(state, { losses: [], accuracies: [], clock: [] });
  for (const [id, text] of [["step", "0"], ["epoch", "0"], ["loss", "–"], ["speed", "–"]]) $(id).textContent = text;
  ask("begin", settings());
}

$("start").addEventListener("click", () => {
  if (state.training) return ask("pause");
  state.clock = [];
  showTraining(true);
  ask("train", { steps: Number($("epochs").value) * state.perEpoch });
});
$("reset").addEventListener("click", startOver);
$("batch").addEventListener("change", startOver);
$("lr").addEventListener("change", () => ask("lr", { lr: Number($("lr").value) }));
$("save").addEventListener("click", () => ask("save"));

// ---- the curve

const MEAN = 0.06; // of the moving average
let drawn = false;

function redraw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    drawCurve();
  });
}

function drawCurve() {
  const canvas = $("curve"), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  // Canvases do not know light-dark(): a property of an element does.
  const color = (name) => {
    canvas.style.color = style.getPropertyValue(name);
    return getComputedStyle(canvas).color;
  };
  const [ink, line, raw, fire, good] = ["--soft", "--line", "--raw", "--fire", "--good"].map(color);
  const left = 38, right = 40, top = 10, bottom = 24, n = state.losses.length;
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  const highest = Math.max(1, Math.ceil(state.losses.reduce((a, b) => Math.max(a, b), 0)));
  const most = Math.max(n, state.perEpoch * 5);
  const x = (i) => left + ((width - left - right) * i) / most;
  const y = (v) => top + (height - top - bottom) * (1 - v);
  for (let k = 0; k <= 4; k++) {
    pen.strokeStyle = line;
    pen.beginPath();
    pen.moveTo(left, y(k / 4));
    pen.lineTo(width - right, y(k / 4));
    pen.stroke();
    pen.fillStyle = ink;
    pen.textAlign = "right";
    pen.fillText(((highest * k) / 4).toFixed(highest < 8 ? 2 : 0), left - 6, y(k / 4) + 4);
    pen.fillStyle = good;
    pen.textAlign = "left";
    pen.fillText(`${25 * k}%`, width - right + 6, y(k / 4) + 4);
  }
  pen.fillStyle = ink;
  pen.textAlign = "center";
  const epochs = most / state.perEpoch;
  let every = Math.max(1, Math.ceil(epochs / 10));
  // On a phone, fewer: "epoch 0" is the widest.
  while (every < epochs && x(every * state.perEpoch) - x(0) < 50) every++;
  for (let e = 0; e <= epochs; e += every) pen.fillText(e === 0 ? "epoch 0" : e, Math.max(x(e * state.perEpoch), left + 16), height - 6);
  const path = (points, stroke, thick) => {
    pen.strokeStyle = stroke;
    pen.lineWidth = thick;
    pen.lineJoin = "round";
    pen.beginPath();
    points.forEach(([px, py], i) => (i ? pen.lineTo(px, py) : pen.moveTo(px, py)));
    pen.stroke();
  };
  let mean = state.losses[0];
  const means = state.losses.map((v) => (mean += MEAN * (v - mean)));
  path(state.losses.map((v, i) => [x(i + 1), y(v / highest)]), raw, 1);
  path(means.map((v, i) => [x(i + 1), y(v / highest)]), fire, 2.2);
  path(state.accuracies.map(({ step, value }) => [x(step), y(value)]), good, 2);
  pen.fillStyle = good;
  for (const { step, value } of state.accuracies) {
    pen.beginPath();
    pen.arc(x(step), y(value), 2.8, 0, 2 * Math.PI);
    pen.fill();
  }
  const last = state.accuracies.at(-1);
  canvas.setAttribute("aria-label", n === 0 ? "The loss of each step: nothing trained yet"
    : `The loss of ${n} steps: it began at ${state.losses[0].toFixed(3)}, its average is now ${means.at(-1).toFixed(3)}; test accuracy ${percent(last.value)}`);
}

new ResizeObserver(redraw).observe($("curve"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// ---- drawing

const pad = $("pad"), pen = pad.getContext("2d", { willReadFrequently: true });
const PEN = 40; // pixels of the drawing area: strokes about as thick as in the digits it learns
let stroke = null, asked = 0, pixels = null;

function clearPad() {
  pen.clearRect(0, 0, pad.width, pad.height);
  pixels = null;
  $("truth").textContent = "";
  showSeen(new Float32Array(64));
  showPrediction(null);
}

function place(event) {
  const box = pad.getBoundingClientRect();
  return [((event.clientX - box.left) * pad.width) / box.width, ((event.clientY - box.top) * pad.height) / box.height];
}

function segment([ax, ay], [bx, by]) {
  pen.lineWidth = PEN;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = "#22201d";
  pen.beginPath();
  pen.moveTo(ax, ay);
  pen.lineTo(bx, by);
  pen.stroke();
}

pad.addEventListener("pointerdown", (event) => {
  if ($("truth").textContent) clearPad(); // what a test digit left
  pad.setPointerCapture(event.pointerId);
  stroke = place(event);
  segment(stroke, stroke);
  look();
});
pad.addEventListener("pointermove", (event) => {
  if (!stroke) return;
  for (const part of event.getCoalescedEvents?.() ?? [event]) {
    const next = place(part);
    segment(stroke, next);
    stroke = next;
  }
  look();
});
for (const end of ["pointerup", "pointercancel"]) pad.addEventListener(end, () => (stroke = null));
$("clear").addEventListener("click", clearPad);

// As the digits were made: cut to the ink, fitted into 32 by 32 dots, and the ink of each 4 by 4 block counted.
function digitized() {
  const { data } = pen.getImageData(0, 0, pad.width, pad.height);
  let [x0, y0, x1, y1] = [pad.width, pad.height, -1, -1];
  for (let y = 0; y < pad.height; y++)
    for (let x = 0; x < pad.width; x++)
      if (data[4 * (y * pad.width + x) + 3] > 127) [x0, y0, x1, y1] = [Math.min(x0, x), Math.min(y0, y), Math.max(x1, x), Math.max(y1, y)];
  const image = new Float32Array(64);
  if (x1 < 0) return image;
  const [w, h] = [x1 - x0 + 1, y1 - y0 + 1];
  const [wide, high] = [w, h].map((n) => Math.max(8, Math.round((32 * n) / Math.max(w, h))));
  const small = new OffscreenCanvas(32, 32).getContext("2d");
  small.imageSmoothingQuality = "high";
  small.drawImage(pad, x0, y0, w, h, (32 - wide) >> 1, (32 - high) >> 1, wide, high);
  const dots = small.getImageData(0, 0, 32, 32).data;
  for (let y = 0; y < 32; y++) for (let x = 0; x < 32; x++) if (dots[4 * (32 * y + x) + 3] > 127) image[8 * (y >> 2) + (x >> 2)] += 1 / 16;
  return image;
}

function look() {
  pixels = digitized();
  predict();
}

function predict() {
  if (pixels === null || !state.ready) return;
  showSeen(pixels);
  ask("predict", { pixels, id: ++asked });
}

function showSeen(image) {
  const seen = $("seen").getContext("2d"), small = seen.createImageData(8, 8);
  image.forEach((v, i) => small.data.set([34, 32, 29, Math.round(255 * Math.min(1, v))], 4 * i));
  seen.putImageData(small, 0, 0);
}

const bars = Array.from({ length: 10 }, (_, digit) => {
  const item = document.createElement("li"), value = document.createElement("span"), bar = document.createElement("i"), name = document.createElement("span");
  name.textContent = digit;
  item.append(value, bar, name);
  $("bars").append(item);
  return { item, value, bar };
});

function showPrediction(probabilities) {
  const best = probabilities && probabilities.indexOf(Math.max(...probabilities));
  $("prediction").textContent = probabilities ? best : "?";
  bars.forEach(({ item, value, bar }, digit) => {
    const p = probabilities ? probabilities[digit] : 0;
    value.textContent = probabilities && p >= 0.005 ? `${Math.round(100 * p)}%` : "";
    bar.style.height = `${5 * p}rem`;
    item.classList.toggle("first", probabilities !== null && digit === best);
  });
}

$("sample").addEventListener("click", () => {
  state.sampleAt = (state.sampleAt + 97) % state.testCount; // one after the other would be of one writer
  ask("sample", { index: state.sampleAt });
});

function showSample({ pixels: image, label }) {
  clearPad();
  const cell = pad.width / 8;
  image.forEach((v, i) => {
    pen.fillStyle = `rgb(34 32 29 / ${v})`;
    pen.fillRect((i % 8) * cell, Math.floor(i / 8) * cell, cell, cell);
  });
  $("truth").textContent = `written: ${label}`;
  pixels = image;
  predict();
}

// ---- programs

async function open(file) {
  if (!file) return;
  $("problem").hidden = true;
  $("about").textContent = `Reading ${file.name} …`;
  const bytes = new Uint8Array(await file.arrayBuffer());
  ask("open", { bytes, name: file.name }, [bytes.buffer]);
}

$("file").addEventListener("change", (event) => open(event.target.files[0]));
$("own").addEventListener("click", () => {
  $("problem").hidden = true;
  ask("show");
});
for (const kind of ["dragenter", "dragover"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.add("over");
  });
addEventListener("dragleave", () => $("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  open(event.dataTransfer?.files[0]);
});

function download(bytes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes]));
  link.download = "digits.pt2";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// ---- what the worker says

const heard = {
  loaded({ version }) { $("version").textContent = `firebrand ${version}`; },
  ready({ stepsPerEpoch, accuracy, testCount }) {
    Object.assign(state, { perEpoch: stepsPerEpoch, testCount, ready: true, accuracies: [{ step: 0, value: accuracy }] });
    $("accuracy").textContent = percent(accuracy);
    for (const id of ["start", "reset", "save", "own", "sample"]) $(id).disabled = false;
    showTraining(false);
    redraw();
    predict();
  },
  losses({ losses, accuracy, steps, done }) {
    state.losses.push(...losses);
    if (accuracy) state.accuracies.push(accuracy);
    const now = performance.now();
    state.clock.push([now, steps]);
    while (state.clock.length > 2 && now - state.clock[0][0] > 1000) state.clock.shift();
    const [[then, before]] = state.clock;
    $("step").textContent = steps.toLocaleString("en");
    $("epoch").textContent = (steps / state.perEpoch).toFixed(1);
    if (losses.length) $("loss").textContent = losses.at(-1).toFixed(3);
    if (accuracy) $("accuracy").textContent = percent(accuracy.value);
    if (now > then) $("speed").textContent = Math.round((1000 * (steps - before)) / (now - then)).toLocaleString("en");
    if (accuracy) predict();
    if (done) {
      showTraining(false);
      $("said").textContent = `Trained ${steps} steps; test accuracy ${percent(state.accuracies.at(-1).value)}`;
    }
    redraw();
  },
  paused() {
    showTraining(false);
    $("said").textContent = `Paused after ${state.losses.length} steps`;
  },
  prediction({ id, probabilities }) { if (id === asked && pixels !== null) showPrediction(probabilities); },
  sample: showSample,
  saved({ bytes }) { download(bytes); },
  graph({ name, about, html }) {
    $("about").textContent = `${name}: ${about}`;
    $("viewer").srcdoc = html;
    $("viewer").hidden = false;
    $("problem").hidden = true;
  },
  problem({ message }) {
    $("problem").textContent = message;
    $("problem").hidden = false;
    $("about").textContent = "";
    showTraining(false);
  },
};

worker.addEventListener("message", ({ data }) => heard[data.kind](data));
worker.addEventListener("error", (event) => heard.problem({ message: event.message || "The worker did not start; serve this folder over HTTP and build it with `cargo xtask web`." }));

// ---- theme

const dark = matchMedia("(prefers-color-scheme: dark)");
function showTheme() {
  const chosen = document.documentElement.style.colorScheme || (dark.matches ? "dark" : "light");
  $("theme").textContent = chosen === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", chosen === "dark" ? "Use light colors" : "Use dark colors");
  $("theme").setAttribute("aria-pressed", chosen === "dark");
}
$("theme").addEventListener("click", () => {
  const chosen = document.documentElement.style.colorScheme || (dark.matches ? "dark" : "light");
  document.documentElement.style.colorScheme = chosen === "dark" ? "light" : "dark";
  showTheme();
  redraw();
});
showTheme();

clearPad();
ask("load", settings());
