"""Fills memory with pages of a mark, noise and zeros, waits until a file exists if one is named, and looks at every
byte again: secrets.py MEBIBYTES [FILE]. With the word "fresh" it looks for the mark in memory that it never wrote to:
secrets.py MEBIBYTES fresh."""

import os
import random
import sys
import time

MEBIBYTE = 1 << 20
# Made here, so that it is in no text that vswap or the kernel has.
MARK = bytes((7 + 37 * at) % 251 for at in range(32))
# So much of a page that it compresses, but the mark stays as it is.
NOISE_BYTES = 1400


def chunk(source):
    page = lambda: MARK + source.randbytes(NOISE_BYTES) + bytes(4096 - len(MARK) - NOISE_BYTES)
    return bytearray(b"".join(page() for _ in range(MEBIBYTE // 4096)))


def keep(count, file):
    source = random.Random(7)
    kept = [chunk(source) for _ in range(count)]
    print("filled", flush=True)
    at = 0
    while file and not os.path.exists(file):
        # Pages come back, and others leave.
        kept[at % count].count(0)
        at += 1
        time.sleep(0.002)
    source = random.Random(7)
    for content in kept:
        assert content == chunk(source), "a byte is wrong"


def look(count):
    for step in range(3):
        fresh = [bytearray(MEBIBYTE) for _ in range(count)]
        # The last round has written to each page: what is around that must still be zeros.
        for content in fresh:
            content[::4096] = bytes([step + 1]) * (MEBIBYTE // 4096)
        for content in fresh:
            assert MARK not in content, "content of another program"
            assert content.count(0) == MEBIBYTE - MEBIBYTE // 4096, "no zeros"


count, rest = int(sys.argv[1]), sys.argv[2:]
if rest == ["fresh"]:
    look(count)
else:
    keep(count, rest[0] if rest else None)
