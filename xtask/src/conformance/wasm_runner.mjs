// Runs the tests of one WebAssembly module, each in an instance of its own: a failed test traps, and leaves nothing behind.
//
//     node wasm_runner.mjs MODULE.wasm ROOT SCRATCH [EXCLUDED...]      every test but the excluded ones
//     node wasm_runner.mjs MODULE.wasm ROOT SCRATCH --main [ARG...]    the module as a program
//
// ROOT is the folder that tests may read, SCRATCH one they may write. Prints a line for each failure with its last words,
// and a line "passed N ignored N failed N excluded N" at the end.
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { WASI } from "node:wasi";

const [file, root, scratch, ...rest] = process.argv.slice(2);
const module = await WebAssembly.compile(readFileSync(file));
const captured = [join(scratch, `out.${process.pid}`), join(scratch, `err.${process.pid}`)];

/** Runs the module on these arguments; returns its exit code (none if it trapped) and what it wrote. */
async function run(args, inherit = false) {
  const [stdout, stderr] = inherit ? [1, 2] : captured.map((path) => openSync(path, "w"));
  let code = null, trap = "";
  try {
    const env = { RUST_TEST_THREADS: "1", TMPDIR: scratch, CARGO_MANIFEST_DIR: process.env.CARGO_MANIFEST_DIR ?? root };
    const wasi = new WASI({ version: "preview1", args: [file, ...args], env, preopens: { [root]: root, [scratch]: scratch, "/tmp": scratch }, stdout, stderr, returnOnExit: true });
    code = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
  } catch (error) {
    trap = String(error);
  }
  if (inherit) return { code, trap };
  [stdout, stderr].forEach(closeSync);
  const [out, err] = captured.map((path) => readFileSync(path, "utf8"));
  return { code, out, err, trap };
}

if (rest[0] === "--main") {
  const { code, trap } = await run(rest.slice(1), true);
  if (trap) writeSync(2, `${trap}\n`);
  process.exit(code ?? 1);
}
const excluded = new Set(rest);
const listed = await run(["--list", "--format", "terse"]);
if (listed.code !== 0) {
  console.log(`FAILED to list: ${listed.trap} ${listed.err.slice(-500)}`);
  process.exit(1);
}
const tests = listed.out.split("\n").filter((line) => line.endsWith(": test")).map((line) => line.slice(0, -6));
for (const name of excluded) if (!tests.includes(name)) console.log(`FAILED ${name}: excluded, but there is no such test`);
const count = { passed: 0, ignored: 0, failed: 0, excluded: 0 };
for (const name of tests) {
  if (excluded.has(name)) {
    count.excluded++;
    continue;
  }
  const { code, out, err, trap } = await run([name, "--exact", "--nocapture"]);
  if (code === 0 && / 1 passed/.test(out)) count.passed++;
  else if (code === 0 && / 1 ignored/.test(out)) count.ignored++;
  else {
    count.failed++;
    const words = (err.trim() || out.trim()).replace(/note: run with `RUST_BACKTRACE=1`[^\n]*/, "").trim();
    console.log(`FAILED ${name}: ${trap || `exit code ${code}`}: ${words.slice(-600).replace(/\n/g, "\n    ")}`);
  }
}
console.log(`passed ${count.passed} ignored ${count.ignored} failed ${count.failed} excluded ${count.excluded}`);
