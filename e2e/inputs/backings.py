"""Takes a memory of so many MiB through zeros, text and zeros again, and checks every byte in between.

A third of what each page of text holds does not compress, so that a compressed pool fills up.
"""
import random
import sys

PAGE = 4096
ZEROS = bytes(PAGE)
pages = int(sys.argv[1]) * 256
memory = bytearray(pages * PAGE)


def text(page):
    noise = random.Random(page).randbytes(PAGE // 3)
    return noise + (b"page %d of many, " % page * 250)[: PAGE - len(noise)]


def write(what, chosen):
    for page in chosen:
        memory[page * PAGE : (page + 1) * PAGE] = what(page)


def check(what, chosen):
    for page in chosen:
        if memory[page * PAGE : (page + 1) * PAGE] != what(page):
            sys.exit(f"page {page} is not what was written")


def zeros(page):
    return ZEROS


every, even, odd = range(pages), range(0, pages, 2), range(1, pages, 2)
write(text, every)
write(zeros, every)
check(zeros, every)
write(text, every)
check(text, every)
check(text, every)
write(zeros, even)
check(zeros, even)
check(text, odd)
print(f"{pages} pages are right")
