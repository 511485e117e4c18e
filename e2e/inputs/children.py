"""A parent whose children each keep and change their own copy of its memory; every byte that is read is checked.

Arguments: MiB of memory, children, pages that each child checks, pages of these that it writes, seconds that it lives.
A child for which the system has no process waits until another one has ended.
"""

import hashlib
import mmap
import os
import sys
import time

MIB, CHILDREN, CHECKED, WRITTEN = map(int, sys.argv[1:5])
LIFE = float(sys.argv[5])
PAGE = 4096
PAGES = MIB << 8
memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def content(page, version):
    return hashlib.sha256(b"%d %d" % (page, version)).digest() * (PAGE // 32)


def check(page, version, who):
    at = page * PAGE
    if memory[at : at + PAGE] != content(page, version):
        os.write(2, b"WRONG: page %d of %s\n" % (page, who.encode()))
        os._exit(9)


def child(number):
    pages = [(number * 7919 + step * 601) % PAGES for step in range(CHECKED)]
    for page in pages:
        check(page, 0, "child")
    for page in pages[:WRITTEN]:
        memory[page * PAGE : (page + 1) * PAGE] = content(page, number + 1)
    time.sleep(LIFE)
    for page in pages[:WRITTEN]:
        check(page, number + 1, "child that has written")
    for page in pages[WRITTEN:]:
        check(page, 0, "child after a while")
    os._exit(0)


def reap():
    _, status = os.wait()
    if status != 0:
        print("child ended with", status, flush=True)
    return status != 0


for page in range(PAGES):
    memory[page * PAGE : (page + 1) * PAGE] = content(page, 0)
began = time.monotonic()
living, failed, slowest = 0, 0, 0.0
for number in range(CHILDREN):
    while True:
        before = time.monotonic()
        try:
            pid = os.fork()
            break
        except BlockingIOError:
            failed += reap()
            living -= 1
    if pid == 0:
        child(number)
    living += 1
    slowest = max(slowest, time.monotonic() - before)
print("forked", CHILDREN, "slowest", round(slowest, 2), "all", round(time.monotonic() - began, 2), flush=True)
for _ in range(living):
    failed += reap()
for page in range(PAGES):
    check(page, 0, "parent")
print("parent right,", failed, "children failed", flush=True)
