// Large arrays, objects, strings and buffers: filled, replaced while the collector runs, and verified.
'use strict';

const BUFFERS = 3_000;
const BUFFER_BYTES = 65_536;
const RECORDS = 600_000;
const CELLS = 20_000_000;

function mix(seed) {
  let z = Math.imul(seed ^ (seed >>> 16), 0x45d9f3b);
  z = Math.imul(z ^ (z >>> 16), 0x45d9f3b);
  return (z ^ (z >>> 16)) >>> 0;
}

function fail(text) {
  console.log(text);
  process.exit(1);
}

function fill(buffer, number, generation) {
  for (let at = 0; at < BUFFER_BYTES; at += 256) {
    buffer.fill(number & 0xff, at, at + 256);
    buffer.writeUInt32LE(mix(number * 131 + at + generation), at);
  }
}

function verifyBuffers(buffers, generation) {
  let sum = 0;
  for (let number = 0; number < BUFFERS; number++) {
    for (let at = 0; at < BUFFER_BYTES; at += 256) {
      const found = buffers[number].readUInt32LE(at);
      if (found !== mix(number * 131 + at + generation[number])) fail(`buffer ${number} is wrong at ${at}`);
      if (buffers[number][at + 255] !== (number & 0xff)) fail(`buffer ${number} is wrong after ${at}`);
      sum = (sum + found) % 1_000_003;
    }
  }
  return sum;
}

const record = (number) => ({ number, name: `customer-${number}`, orders: [number % 100, number % 7, 0] });

function verifyRecords(records) {
  let sum = 0;
  for (let step = 0; step < RECORDS; step++) {
    const number = (step * 7919) % RECORDS;
    const found = records.get(number);
    if (found.number !== number || found.name !== `customer-${number}`) fail(`record ${number} is wrong`);
    sum += found.orders[0] + found.orders[1];
  }
  return sum;
}

const generation = new Array(BUFFERS).fill(0);
const buffers = [];
for (let number = 0; number < BUFFERS; number++) {
  buffers.push(Buffer.alloc(BUFFER_BYTES));
  fill(buffers[number], number, 0);
}
const records = new Map();
for (let number = 0; number < RECORDS; number++) records.set(number, record(number));
const cells = new Float64Array(CELLS);
for (let at = 0; at < CELLS; at++) cells[at] = at >> 8;
console.log('filled', verifyBuffers(buffers, generation), verifyRecords(records));

for (let number = 0; number < BUFFERS; number += 3) {
  generation[number] = 1;
  buffers[number] = Buffer.alloc(BUFFER_BYTES);
  fill(buffers[number], number, 1);
}
for (let number = 0; number < RECORDS; number += 2) records.set(number, record(number));
console.log('replaced', verifyBuffers(buffers, generation), verifyRecords(records));
for (let at = 0; at < CELLS; at++) if (cells[at] !== at >> 8) fail(`cell ${at} is ${cells[at]}`);
console.log('right');
