// graphile-worker on Node, with the same verbs as run.py. Settings as its page on performance has them.
"use strict";
const fs = require("fs");
const path = require("path");
const { createRequire } = require("module");
const theirs = createRequire(path.join(process.env.BENCH_NODE, "index.js"));
const { run, makeWorkerUtils } = theirs("graphile-worker");
const { Logger } = theirs("graphile-worker");

const connectionString = process.env.BENCH_DSN;
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as Python's time.monotonic_ns
const quiet = new Logger(() => () => {});
const AT_ONCE = 24;
const record = Buffer.alloc(24);
let file = null, calls = 0n, first = 0n;

function call() {
  const instant = now();
  if (file === null) {
    first = instant;
    file = fs.openSync(path.join(process.env.BENCH_CALLS, `${process.pid}-${instant}`), "w");
  }
  record.writeBigInt64LE(++calls, 0);
  record.writeBigInt64LE(first, 8);
  record.writeBigInt64LE(instant, 16);
  fs.writeSync(file, record, 0, 24, 0);
}

const taskList = {
  nothing_async: async () => call(),
  stamp: async ({ number }) => fs.appendFileSync(process.env.BENCH_STAMPS, `${number} ${now()}\n`),
  hold: async () => {
    fs.appendFileSync(process.env.BENCH_BEGUN, `${process.pid} ${now()}\n`);
    await new Promise((done) => setTimeout(done, 3_600_000));
  },
};
const tuned = {
  worker: { concurrentJobs: AT_ONCE, maxPoolSize: AT_ONCE + 1, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
};

async function many(utils, task, count) {
  for (let start = 0; start < count; start += 5000) {
    const size = Math.min(5000, count - start);
    await utils.addJobs(Array.from({ length: size }, () => ({ identifier: task, payload: {} })));
  }
}

async function main([verb, ...rest]) {
  if (verb === "version") {
    const { version } = JSON.parse(fs.readFileSync(path.join(process.env.BENCH_NODE, "node_modules/graphile-worker/package.json")));
    return console.log(`graphile-worker ${version}, Node ${process.versions.node}`);
  }
  if (verb === "work") {
    const preset = { ...(rest[2] === "tuned" ? tuned : {}) };
    const runner = await run({ connectionString, taskList, preset, logger: quiet, noHandleSignals: false });
    return runner.promise;
  }
  const utils = await makeWorkerUtils({ connectionString, logger: quiet });
  if (verb === "install") await utils.migrate();
  if (verb === "hold") await utils.addJob("hold", {});
  if (verb === "enqueue") await enqueue(utils, ...rest);
  if (verb === "pace") await pace(utils, ...rest);
  return utils.release();
}

async function enqueue(utils, count, how, task) {
  if (how === "fill") return many(utils, task, Number(count));
  const warmUp = how === "one" ? 3 : 1, left = Number(count) - warmUp;
  for (let n = 0; n < warmUp; n++) await utils.addJob(task, {});
  const started = now();
  if (how === "many") await many(utils, task, left);
  else for (let n = 0; n < left; n++) await utils.addJob(task, {});
  console.log((Number(now() - started) / 1e9) * (Number(count) / left));
}

async function pace(utils, count, gap) {
  for (let number = -3; number < Number(count); number++) {
    await new Promise((done) => setTimeout(done, 1000 * Number(gap) * (0.5 + Math.random())));
    const before = now();
    await utils.addJob("stamp", { number });
    if (number >= 0) console.log(`${number} ${before}`);
  }
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
