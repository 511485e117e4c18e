"""One process is stopped again and again in the middle of forks; another one's forks must not wait for it.

Before each stop somebody calls the pager and says nothing, as a process does that is stopped just then.
Arguments: stops, seconds of each. Prints the longest fork of the other process.
"""

import hashlib
import mmap
import os
import signal
import socket
import sys
import time

PAGE = 4096
PAGES = 8 << 8


def content(page, version):
    return hashlib.sha256(b"%d %d" % (page, version)).digest() * (PAGE // 32)


def check(memory, version):
    for page in range(PAGES):
        if memory[page * PAGE : (page + 1) * PAGE] != content(page, version):
            os.write(2, b"WRONG: page %d\n" % page)
            os._exit(9)


def fork_for_ever(version, report):
    """Fills memory, and forks children that check some of it until asked to end; tells the longest fork."""
    memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(PAGES):
        memory[page * PAGE : (page + 1) * PAGE] = content(page, version)
    ends = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    slowest, number = 0.0, 0
    while not ends:
        before = time.monotonic()
        pid = os.fork()
        if pid == 0:
            page = number * 31 % PAGES
            same = memory[page * PAGE : (page + 1) * PAGE] == content(page, version)
            os._exit(0 if same else 9)
        slowest = max(slowest, time.monotonic() - before)
        if os.waitpid(pid, 0)[1] != 0:
            os._exit(9)
        number += 1
    check(memory, version)
    os.write(report, b"%d forks, slowest %d ms\n" % (number, slowest * 1000))
    os._exit(0)


def start(version, report):
    pid = os.fork()
    if pid == 0:
        fork_for_ever(version, report)
    return pid


stops, length = int(sys.argv[1]), float(sys.argv[2])
silent = os.open("/dev/null", os.O_WRONLY)
stopped, other = start(1, silent), start(2, 1)
time.sleep(1)
callers = []
for number in range(stops):
    if "VSWAP_SOCKET" in os.environ:
        callers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        callers[-1].connect(os.environ["VSWAP_SOCKET"])
    time.sleep(0.05 + 0.007 * (number % 9))
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(length)
    os.kill(stopped, signal.SIGCONT)
for pid in (stopped, other):
    os.kill(pid, signal.SIGTERM)
    status = os.waitpid(pid, 0)[1]
    if status != 0:
        sys.exit(f"a process ended with {status}")
