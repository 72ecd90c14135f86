// BullMQ with one process, `concurrency` as many as slots, and jobs removed when they are done, as its page for production
// says; `addBulk` sends many. The commands and what is told are those of marks.py. PEER_MODULES is where it is installed.

import fs from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(`${process.env.PEER_MODULES}/`);
const { Queue, Worker } = require("bullmq");

const NAME = "bench";
const TASK = "customer.billing.statements.tasks.send_monthly_statement_pdf";
const TEXT = "x".repeat(96);
const WARM_UP = 50;
const NO_MARK = -1;
const APPEARS_WITHIN_MS = 20_000;
const WRITE_EVERY_MS = 5;

const connection = { path: process.env.PEER_SOCKET, maxRetriesPerRequest: null };
const done = { removeOnComplete: true, removeOnFail: true };
const now = () => Number(process.hrtime.bigint()) / 1e9;

// -- marks: kept in memory, and written to the file every few milliseconds; what is written since is one piece of it

function openMarks() {
  const file = fs.openSync(process.env.PEER_MARKS, "r+");
  const marks = new Float64Array(fs.fstatSync(file).size / 8);
  const bytes = new Uint8Array(marks.buffer);
  let first = Infinity;
  let last = -1;
  setInterval(() => {
    if (last < 0) return;
    fs.writeSync(file, bytes, first * 8, (last - first + 1) * 8, first * 8);
    first = Infinity;
    last = -1;
  }, WRITE_EVERY_MS);
  return (number) => {
    if (number < 0) return;
    marks[number] = now();
    if (number < first) first = number;
    if (number > last) last = number;
  };
}

async function awaitMark(file, number) {
  const cell = Buffer.alloc(8);
  const end = Date.now() + APPEARS_WITHIN_MS;
  for (;;) {
    fs.readSync(file, cell, 0, 8, number * 8);
    if (cell.readDoubleLE(0)) return;
    if (Date.now() > end) throw new Error(`Job ${number} has not begun within ${APPEARS_WITHIN_MS} ms.`);
    await sleep(1);
  }
}

// -- commands

const numbered = (number, ms) => ({ name: "body", data: { number, ms } });
const commands = {
  async single(queue, count) {
    for (let i = 0; i < WARM_UP; i++) await queue.add("body", { number: NO_MARK, ms: 0 });
    const begun = now();
    for (let number = 0; number < count; number++) await queue.add("body", { number, ms: 0 });
    return { seconds: now() - begun };
  },
  async bulk(queue, count, chunk) {
    await queue.addBulk(Array.from({ length: WARM_UP }, () => numbered(NO_MARK, 0)));
    const begun = now();
    await commands.fill(queue, count, chunk, 0);
    return { seconds: now() - begun };
  },
  async fill(queue, count, chunk, ms) {
    for (let first = 0; first < count; first += chunk) {
      const size = Math.min(chunk, count - first);
      await queue.addBulk(Array.from({ length: size }, (_, i) => numbered(first + i, ms)));
    }
    return {};
  },
  async texts(queue, count, chunk) {
    for (let first = 0; first < count; first += chunk) {
      const size = Math.min(chunk, count - first);
      await queue.addBulk(Array.from({ length: size }, () => ({ name: TASK, data: [TEXT] })));
    }
    return {};
  },
  async starts(queue, count) {
    const file = fs.openSync(process.env.PEER_MARKS, "r");
    const calls = [];
    for (let number = 0; number < count; number++) {
      const before = now();
      await queue.add("body", { number, ms: 0 });
      calls.push([before, now()]);
      await awaitMark(file, number);
      await sleep(8 + (number % 5));
    }
    return { calls };
  },
};

function work(slots) {
  const begin = openMarks();
  const worker = new Worker(
    NAME,
    async (job) => {
      begin(job.data.number);
      if (job.data.ms) await sleep(job.data.ms);
    },
    { connection, concurrency: slots, ...done },
  );
  worker.on("error", (error) => console.error(error));
  process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
}

const [command, ...words] = process.argv.slice(2);
if (command === "work") {
  work(Number(words[0]));
} else {
  const queue = new Queue(NAME, { connection, defaultJobOptions: done });
  await queue.waitUntilReady();
  console.log(JSON.stringify(await commands[command](queue, ...words.map(Number))));
  await queue.close();
}
