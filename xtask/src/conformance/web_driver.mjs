// Serves the page, opens it in a headless Chromium and does what people do, by the browser's own protocol over a pipe:
//
//     node web_driver.mjs BROWSER WEB_FOLDER PROGRAMS_FOLDER PICTURES_FOLDER
//
// Prints how many checks hold; exits with 1 at the first that does not.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize, resolve } from "node:path";

const [browser, web, programs, pictures] = process.argv.slice(2);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
/** Seconds that anything may take before it counts as failed. */
const PATIENCE = 240;

const server = createServer((request, response) => {
  const path = normalize(new URL(request.url, "http://localhost").pathname);
  try {
    const content = readFileSync(join(web, path === "/" ? "index.html" : path));
    response.writeHead(200, { "content-type": TYPES[extname(path === "/" ? "index.html" : path)] ?? "application/octet-stream" });
    response.end(content);
  } catch {
    response.writeHead(404);
    response.end();
  }
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const address = `http://127.0.0.1:${server.address().port}/`;

const profile = mkdtempSync(join(tmpdir(), "firebrand-web-"));
const chromium = spawn(browser, ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
let gone = false;
const ended = new Promise((done) => chromium.on("exit", () => { gone = true; done(); }));

// ---- the protocol: JSON messages that end with a zero byte

const waiting = new Map();
const events = [];
let number = 0, buffer = Buffer.alloc(0);
chromium.stdio[4].on("data", (chunk) => {
  buffer = Buffer.concat([buffer, chunk]);
  for (let end; (end = buffer.indexOf(0)) >= 0; buffer = buffer.subarray(end + 1)) {
    const message = JSON.parse(buffer.subarray(0, end).toString());
    if (message.id) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    } else events.push(message);
  }
});
const send = (method, params = {}, sessionId) => new Promise((resolve, reject) => {
  waiting.set(++number, { resolve, reject });
  chromium.stdio[3].write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
});

const { targetId } = await send("Target.createTarget", { url: "about:blank" });
const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
const call = (method, params) => send(method, params, sessionId);
await Promise.all([call("Page.enable"), call("Runtime.enable"), call("DOM.enable")]);

async function evaluate(expression) {
  const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}
async function until(what, expression) {
  for (let tries = 0; tries < PATIENCE * 20; tries++) {
    if (await evaluate(expression)) return;
    const problem = await evaluate("document.getElementById('problem')?.hidden === false && document.getElementById('problem').textContent");
    if (problem) throw new Error(`${what}: the page says: ${problem}`);
    if (gone) throw new Error("the browser ended");
    await new Promise((go) => setTimeout(go, 50));
  }
  throw new Error(`${what}: not within ${PATIENCE} s`);
}
const text = (id) => evaluate(`document.getElementById(${JSON.stringify(id)}).textContent`);
const click = (id) => evaluate(`document.getElementById(${JSON.stringify(id)}).click()`);
async function size(width, height, mobile) {
  await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: mobile ? 2 : 1, mobile });
}
const theme = (value) => call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
async function picture(name, whole = true) {
  await evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
  const { data } = await call("Page.captureScreenshot", { format: "png", captureBeyondViewport: whole });
  writeFileSync(join(pictures, `${name}.png`), Buffer.from(data, "base64"));
}
/** Draws lines with the mouse, in parts of the drawing area. */
async function draw(strokes) {
  await click("clear");
  await evaluate("document.getElementById('pad').scrollIntoView({ block: 'center' })");
  const box = await evaluate("(({ x, y, width, height }) => ({ x, y, width, height }))(document.getElementById('pad').getBoundingClientRect())");
  const mouse = (type, [x, y]) => call("Input.dispatchMouseEvent", { type, x: box.x + x * box.width, y: box.y + y * box.height, button: "left", buttons: 1, clickCount: 1 });
  for (const stroke of strokes) {
    await mouse("mousePressed", stroke[0]);
    for (let i = 1; i < stroke.length; i++)
      for (let k = 1; k <= 4; k++) await mouse("mouseMoved", stroke[i].map((to, d) => stroke[i - 1][d] + ((to - stroke[i - 1][d]) * k) / 4));
    await mouse("mouseReleased", stroke.at(-1));
  }
}
const arc = (cx, cy, rx, ry, from, to, n = 14) => Array.from({ length: n + 1 }, (_, i) => {
  const a = from + ((to - from) * i) / n;
  return [cx + rx * Math.cos(a), cy + ry * Math.sin(a)];
});
const DRAWINGS = {
  0: [arc(0.5, 0.5, 0.22, 0.36, -Math.PI / 2, 1.5 * Math.PI, 24)],
  1: [[[0.4, 0.27], [0.54, 0.12], [0.54, 0.88]]],
  7: [[[0.25, 0.15], [0.75, 0.15], [0.45, 0.88]]],
};

let held = 0;
function check(what, holds) {
  if (!holds) throw new Error(`does not hold: ${what}`);
  held++;
}

try {
  await size(1280, 900, false);
  await theme("light");
  await call("Page.navigate", { url: address });
  await until("the page is ready", "document.getElementById('start')?.disabled === false");
  check("the network knows about half of the digits before training", parseFloat(await text("accuracy")) < 60);
  check("it says its version", /^firebrand \d/.test(await text("version")));
  await picture("light.before");

  await click("start");
  check("it says that it trains", (await text("start")) === "Pause");
  await until("some steps are taken", "Number(document.getElementById('step').textContent.replace(',', '')) > 20");
  await click("start");
  await until("it pauses", "document.documentElement.dataset.training === 'false'");
  check("it can go on", (await text("start")) === "Train on");
  await click("reset");
  await until("it starts over", "document.getElementById('start').disabled === false && document.getElementById('step').textContent === '0'");
  await click("start");
  await until("it has trained 15 epochs", "document.getElementById('said').textContent.startsWith('Trained')");
  const accuracy = parseFloat(await text("accuracy"));
  check(`it learns the digits (${accuracy} %)`, accuracy > 95);
  check("the epochs are counted", (await text("epoch")) === "15.0");
  check("the curve is described", /15|67\d|loss of \d+ steps/.test(await evaluate("document.getElementById('curve').getAttribute('aria-label')")));
  check("the curve is drawn", await evaluate("(() => { const c = document.getElementById('curve'); return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); })()"));

  for (const [digit, strokes] of Object.entries(DRAWINGS)) {
    await draw(strokes);
    await until(`a drawn ${digit} is recognized, found ${await text("prediction")}`, `document.getElementById('prediction').textContent === '${digit}'`);
    check(`a drawn ${digit} is recognized`, true);
  }
  check("probabilities are shown", /\d+%/.test(await text("bars")));
  await picture("light.trained");
  await theme("dark");
  await picture("dark.trained");
  await click("theme");
  check("the theme can be chosen", (await evaluate("document.documentElement.style.colorScheme")) === "light");
  await click("theme");
  await click("sample");
  await until("a test digit is shown", "document.getElementById('truth').textContent !== '' && document.getElementById('prediction').textContent !== '?'");
  check("a test digit is recognized", (await text("truth")).endsWith(await text("prediction")));
  await click("clear");
  check("the drawing is cleared", (await text("prediction")) === "?");

  // A file, as the file dialog and as a drop give it.
  const { root } = await call("DOM.getDocument");
  const { nodeId } = await call("DOM.querySelector", { nodeId: root.nodeId, selector: "#file" });
  await call("DOM.setFileInputFiles", { nodeId, files: [resolve(programs, "transformer_encoder/model.pt2")] });
  await until("a program is opened", "document.getElementById('viewer').hidden === false");
  check("it is described", /^model\.pt2: [\d,]+ parameters; takes /.test(await text("about")));
  check("its graph is a page", await evaluate("document.getElementById('viewer').srcdoc.startsWith('<!doctype html>')"));
  const drop = (bytes, name) => evaluate(`(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([Uint8Array.from(atob(${JSON.stringify(bytes)}), (c) => c.charCodeAt(0))], ${JSON.stringify(name)}));
    document.getElementById("drop").dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
  })()`);
  await drop(readFileSync(join(programs, "convnet/model.pt2")).toString("base64"), "dropped.pt2");
  await until("a dropped program is opened", "document.getElementById('about').textContent.startsWith('dropped.pt2')");
  check("a dropped program is described", /parameters; takes /.test(await text("about")));
  await new Promise((go) => setTimeout(go, 500)); // the frame's own script draws
  await evaluate("document.getElementById('viewer').scrollIntoView()");
  await picture("dark.viewer");
  await drop(Buffer.from("no program").toString("base64"), "broken.pt2");
  await (async () => {
    for (let tries = 0; tries < 200 && (await evaluate("document.getElementById('problem').hidden")); tries++) await new Promise((go) => setTimeout(go, 25));
  })();
  check("what is wrong with a file is said", (await text("problem")).length > 10);
  await click("own");
  await until("the network itself is shown", "document.getElementById('about').textContent.startsWith('digits.pt2: 2,410 parameters')");
  check("a problem goes away", await evaluate("document.getElementById('problem').hidden"));

  // The interface for other pages, in the page: load, run, train, save.
  const steps = await evaluate(`(async () => {
    const fb = await import("./pkg/firebrand_web.js");
    await fb.default();
    const bytes = new Uint8Array(await (await fetch("pkg/digits.pt2")).arrayBuffer());
    const program = new fb.Program(bytes);
    const name = program.inputNames[0], x = fb.Tensor.fromFloat32(new Float32Array(4 * 64).fill(0.5), [4, 64]);
    program.setInput(name, x);
    const trainer = new fb.Trainer(program, "cross_entropy", "adamw", 1e-2), y = fb.Tensor.fromInt32([7, 8, 9, 7], [4]);
    const losses = Array.from({ length: 20 }, () => trainer.step(program, y));
    const again = new fb.Program(program.save());
    again.setInput(name, x);
    const [one, two] = [program, again].map((p) => [...p.run()[0].toFloat32()]);
    let refused = "";
    try { new fb.Program(bytes.slice(0, 1000)); } catch (error) { refused = error.message; }
    return { losses, equal: one.length === 40 && one.every((v, i) => v === two[i]), refused, x: [...x.sizes] };
  })()`);
  check("steps lower the loss", steps.losses[19] < steps.losses[0] / 2);
  check("a saved program gives the same results", steps.equal && steps.x.join() === "4,64");
  check("half a file is refused with a message", steps.refused.length > 10);

  await theme("light");
  await evaluate("document.documentElement.style.colorScheme = ''");
  await draw(DRAWINGS[7]);
  await size(390, 844, true);
  await evaluate("scrollTo(0, 0)");
  check("nothing is wider than a phone", await evaluate("document.documentElement.scrollWidth <= 390"));
  await picture("phone");
  check("every control has a name", await evaluate("[...document.querySelectorAll('button, select, input, canvas, iframe')].every((e) => (e.getAttribute('aria-label') ?? e.getAttribute('title') ?? e.labels?.[0]?.textContent ?? e.textContent).trim() !== '')"));
  const errors = events.filter((e) => e.method === "Runtime.exceptionThrown");
  check(`no script failed ${JSON.stringify(errors.map((e) => e.params.exceptionDetails.exception?.description))}`, errors.length === 0);
  console.log(`${held} checks hold`);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  if (!gone) await Promise.race([send("Browser.close").catch(() => {}), ended]);
  if (!gone) chromium.kill();
  await ended;
  server.close();
  rmSync(profile, { recursive: true, force: true });
}
