# CPython: a dict of records that are read again and again, the first of them most often, and some written anew.
import random

RECORDS = 600_000
READS = 1_600_000

chance = random.Random(7)
records = {}
for number in range(RECORDS):
    records["record %d" % number] = [number, "name %d of some people" % (number * 7919), (number, number + 1)]
total = 0
for read in range(READS):
    number = int(RECORDS * chance.random() ** 3)
    record = records["record %d" % number]
    total += record[0] + record[2][1]
    if read % 16 == 0:
        record[1] = "name %d of other people" % read
print(total)
