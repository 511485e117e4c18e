// Node: a map of objects that are read again and again, the first of them most often, and some replaced.
'use strict';

const OBJECTS = 600_000;
const READS = 5_000_000;

// Math.random takes no seed.
let state = 7;
function chance() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 4_294_967_296;
}

function made(number, read) {
  return { number, name: `customer ${number} of some people`, orders: [read % 100, number % 7, number] };
}

const objects = new Map();
for (let number = 0; number < OBJECTS; number++) objects.set(number, made(number, 0));
let total = 0;
for (let read = 0; read < READS; read++) {
  const number = Math.floor(OBJECTS * chance() ** 3);
  const object = objects.get(number);
  total += object.number + object.orders[0] + object.name.length;
  if (read % 16 === 0) objects.set(number, made(number, read));
}
for (const object of objects.values()) total += object.orders[0] + object.orders[2];
console.log(total);
