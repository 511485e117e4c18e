"""A parent and its child read the same large table, each in orders of its own. Told "again", they do so twice, and
pages that both bring back from swap must not be stored twice, since there is no room for that. Told "once", the table
compresses so well that much of it is still in memory when they become two, and is then moved out by both."""

import os
import random
import sys
import zlib
from array import array

PAGE = 4096
# A prime, so that every stride goes through all pages.
PAGES = 110_017
# What of every other page, and of the rest, does not compress.
NOISE = {"again": (1536, 16), "once": (256, 256)}
# Strides of the child, and of the parent.
STRIDES = {"again": ([1, 7919], [15_485, 1]), "once": ([7919], [15_485])}


def verify(table, sums, strides, who):
    total = 0
    for stride in strides:
        for step in range(PAGES):
            number = step * stride % PAGES
            found = zlib.crc32(memoryview(table)[number * PAGE : (number + 1) * PAGE])
            if found != sums[number]:
                print(f"{who}: page {number} has other content", flush=True)
                os._exit(1)
            total += found
    return total


def main():
    how = sys.argv[1]
    of_child, of_parent = STRIDES[how]
    noise = random.Random(7)
    table = bytearray(PAGES * PAGE)
    sums = array("L")
    for number in range(PAGES):
        bytes_of_noise = NOISE[how][number % 2]
        table[number * PAGE : number * PAGE + bytes_of_noise] = noise.randbytes(bytes_of_noise)
        sums.append(zlib.crc32(memoryview(table)[number * PAGE : (number + 1) * PAGE]))
    end, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done)
        verify(table, sums, of_child, "child")
        # Until both have read all of it, so that neither is left alone with pages that it brings back.
        os.read(end, 1)
        os._exit(0)
    total = verify(table, sums, of_parent, "parent")
    os.close(done)
    _, status = os.waitpid(child, 0)
    if status != 0:
        print(f"the child ended with status {status}")
        sys.exit(1)
    print("sum", total)
    print("right")


main()
