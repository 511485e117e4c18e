"""multiprocessing by fork: children inherit a large table, change their own copy and verify both; the parent goes on
changing its own meanwhile."""

import hashlib
import multiprocessing
import sys

PAGES = 100_000
PAGE = 4096
WORKERS = 2
ROUNDS = 3


def content(number, generation):
    head = hashlib.blake2b(f"{number}/{generation}".encode(), digest_size=32).digest()
    return head * 4


def fill(table, numbers, generation):
    for number in numbers:
        start = number * PAGE
        text = content(number, generation)
        table[start : start + len(text)] = text


def verify(table, numbers, generation, who):
    total = 0
    for number in numbers:
        start = number * PAGE
        text = content(number, generation)
        if table[start : start + len(text)] != text:
            print(f"{who}: page {number} is not of generation {generation}", flush=True)
            sys.exit(1)
        total += text[0]
    return total


def work(table, worker, round_number):
    own = range(worker, PAGES, 2 * WORKERS)
    untouched = range(worker + WORKERS, PAGES, 2 * WORKERS)
    fill(table, own, 1000 + worker)
    verify(table, untouched, round_number, f"child {worker}")
    verify(table, own, 1000 + worker, f"child {worker}")
    sys.exit(0)


def main():
    table = bytearray(PAGES * PAGE)
    for round_number in range(ROUNDS):
        fill(table, range(PAGES), round_number)
        # The children verify what they inherited, so the parent changes pages only after them or elsewhere: each
        # process has its own copy, and that is what is tested.
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(table, worker, round_number)) for worker in range(WORKERS)]
        for child in children:
            child.start()
        fill(table, range(0, PAGES, 3), 500 + round_number)
        for child in children:
            child.join()
            if child.exitcode != 0:
                raise SystemExit(f"a child ended with {child.exitcode}")
        print("changed", verify(table, range(0, PAGES, 3), 500 + round_number, "parent"))
        print("kept", verify(table, range(1, PAGES, 3), round_number, "parent"))
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        print("pool", sum(pool.map(abs, range(-20_000, 20_000), chunksize=500)))
    print("right")


main()
