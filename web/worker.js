// Owns the WebAssembly instance: trains, predicts and draws graphs away from the page, so that the page stays responsive.
// Messages in: load, train, pause, lr, predict, sample, save, show, open. Every answer names what it answers.
import init, { DigitsTask, Program, lastPanic, programHtml, version } from "./pkg/firebrand_web.js";

/** Milliseconds of training between two looks at the messages. */
const SLICE = 24;

let program = null; // the bytes of the exported network
let task = null;
let wanted = 0; // train until this step
let turn = 0; // so that a pause ends the loop that was running, not the next one

const say = (kind, data = {}, transfer = []) => postMessage({ kind, ...data }, transfer);
const fail = (error) => say("problem", { message: lastPanic() || error.message || String(error) });

function begin({ seed, batch, lr }) {
  task?.free();
  task = new DigitsTask(program, seed, batch, lr);
  wanted = 0;
  turn++;
  say("ready", { stepsPerEpoch: task.stepsPerEpoch, accuracy: task.accuracy(), testCount: task.testCount });
}

function train(mine) {
  if (mine !== turn) return;
  try {
    const losses = [], first = task.steps, until = performance.now() + SLICE;
    let accuracy = null;
    while (task.steps < wanted && performance.now() < until) {
      losses.push(task.step());
      if (task.steps % task.stepsPerEpoch === 0) accuracy = { step: task.steps, value: task.accuracy() };
    }
    const done = task.steps >= wanted;
    say("losses", { first, losses, accuracy, done, steps: task.steps });
    if (!done) setTimeout(train, 0, mine);
  } catch (error) {
    fail(error);
  }
}

const answers = {
  async load(settings) {
    await init({ module_or_path: new URL("./pkg/firebrand_web_bg.wasm", import.meta.url) });
    const found = await fetch(new URL("./pkg/digits.pt2", import.meta.url));
    if (!found.ok) throw new Error(`pkg/digits.pt2: ${found.status}; build the page with \`cargo xtask web\``);
    program = new Uint8Array(await found.arrayBuffer());
    say("loaded", { version: version() });
    begin(settings);
  },
  begin,
  train({ steps }) {
    wanted = task.steps + steps;
    train(++turn);
  },
  pause() {
    turn++;
    say("paused", { steps: task.steps });
  },
  lr({ lr }) { task.setLr(lr); },
  predict({ pixels, id }) { say("prediction", { id, probabilities: task.predict(pixels) }); },
  sample({ index }) { say("sample", { pixels: task.testPixels(index), label: task.testLabel(index) }); },
  save() {
    const bytes = task.save();
    say("saved", { bytes }, [bytes.buffer]);
  },
  show() { say("graph", { name: "digits.pt2", about: describe(task.save()), html: task.html("digits.pt2") }); },
  open({ bytes, name }) {
    // A program that this build cannot run can be looked at all the same.
    let about;
    try {
      about = describe(bytes);
    } catch (error) {
      about = `shown, but cannot run here: ${error.message}`;
    }
    say("graph", { name, about, html: programHtml(bytes, name) });
  },
};

function describe(bytes) {
  const opened = new Program(bytes);
  const inputs = opened.inputNames.map((name) => `${name} [${[...opened.inputSizes(name)].map((n) => (n < 0 ? "?" : n)).join(", ")}]`);
  const text = `${opened.parameterCount.toLocaleString("en")} parameters; takes ${inputs.join(", ") || "nothing"}, returns ${opened.outputNames.join(", ")}`;
  opened.free();
  return text;
}

onmessage = async ({ data }) => {
  try {
    await answers[data.kind](data);
  } catch (error) {
    fail(error);
  }
};
