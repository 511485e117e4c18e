"""Takes pages away behind vswap's back: UFFDIO_MOVE by a userfaultfd of the program's own tells nobody of its source.

A page that had come back from an area for reading, and whose entry was kept, is then neither there nor out."""

import ctypes
import struct
import time

PAGE = 4096
PAGES = 4000
SYS_USERFAULTFD = 323
UFFDIO_API = 0xC018AA3F
UFFDIO_REGISTER = 0xC020AA00
UFFDIO_MOVE = 0xC028AA05
READ_WRITE = 3
PRIVATE_ANONYMOUS = 0x22

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def mapped():
    return libc.mmap(None, ctypes.c_size_t(PAGES * PAGE), READ_WRITE, PRIVATE_ANONYMOUS, -1, 0)


def ask(userfaultfd, request, *words):
    return libc.ioctl(userfaultfd, ctypes.c_ulong(request), struct.pack(f"{len(words)}Q", *words) + bytes(8))


source, target = mapped(), mapped()
userfaultfd = libc.syscall(SYS_USERFAULTFD, 0)
if ask(userfaultfd, UFFDIO_API, 0xAA, 0, 0) or ask(userfaultfd, UFFDIO_REGISTER, target, PAGES * PAGE, 1, 0):
    raise SystemExit(f"no userfaultfd: errno {ctypes.get_errno()}")
for page in range(PAGES):
    ctypes.memset(source + page * PAGE, page % 250 + 1, PAGE)
time.sleep(0.5)
moved = []
for page in range(PAGES):
    for _ in range(50):
        if ctypes.string_at(source + page * PAGE, 1)[0] != page % 250 + 1:
            raise SystemExit(f"page {page} is wrong")
        if ask(userfaultfd, UFFDIO_MOVE, target + page * PAGE, source + page * PAGE, PAGE, 0, 0) == 0:
            moved.append(page)
            break
print("moved", len(moved), flush=True)
for page in moved:
    ctypes.string_at(source + page * PAGE, 1)
print("done")
