"""Memory that is parked and checked again, in a process with threads and in children that share it.

Arguments: MiB, threads, children, and a pipe to read commands from. Threads verify pages all the time. Commands:
`check` verifies every byte everywhere and writes new content to a third of the pages, `grow` maps and fills more
memory, `quit` ends. Each command is answered on standard output.
"""

import hashlib
import mmap
import os
import random
import sys
import threading
import time

PAGE = 4096


def content(seed, page, version):
    """Half of the pages are noise, the other half compresses."""
    line = hashlib.sha256(b"%d %d %d" % (seed, page, version)).digest()
    if page % 2:
        return line * (PAGE // len(line))
    return random.Random(line).randbytes(PAGE)


class Memory:
    def __init__(self, seed, mib):
        self.seed = seed
        self.versions = [0] * (mib << 8)
        self.memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.lock = threading.Lock()
        for page in range(len(self.versions)):
            self.write(page, 1)

    def write(self, page, version):
        self.memory[page * PAGE : (page + 1) * PAGE] = content(self.seed, page, version)
        self.versions[page] = version

    def check(self, page):
        found = self.memory[page * PAGE : (page + 1) * PAGE]
        if found != content(self.seed, page, self.versions[page]):
            os.write(2, b"WRONG: page %d of process %d\n" % (page, os.getpid()))
            os._exit(9)

    def check_all(self):
        for page in range(len(self.versions)):
            with self.lock:
                self.check(page)
                if page % 3 == 0:
                    self.write(page, self.versions[page] + 1)


def look_for_ever(memory, number):
    chosen = random.Random(number)
    while True:
        with memory.lock:
            memory.check(chosen.randrange(len(memory.versions)))
        time.sleep(0.0005)


def serve(memories, commands, answers, children):
    for line in commands:
        command = line.strip()
        if command == "check":
            for memory in memories:
                memory.check_all()
        elif command == "grow":
            memories.append(Memory(len(memories), 8))
        for asked, answered in children:
            asked.write(line)
            asked.flush()
            if answered.readline() != f"done {command}\n":
                os.write(2, b"WRONG: a child of process %d\n" % os.getpid())
                os._exit(9)
        answers.write(f"done {command}\n")
        answers.flush()
        if command == "quit":
            return


def start_child(memories):
    command, answer = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(command[1])
        os.close(answer[0])
        serve(memories, os.fdopen(command[0]), os.fdopen(answer[1], "w"), [])
        os._exit(0)
    os.close(command[0])
    os.close(answer[1])
    return os.fdopen(command[1], "w"), os.fdopen(answer[0])


mib, threads, children = (int(word) for word in sys.argv[1:4])
memories = [Memory(0, mib)]
family = [start_child(memories) for _ in range(children)]
for number in range(threads):
    threading.Thread(target=look_for_ever, args=(memories[0], number), daemon=True).start()
with open(sys.argv[4]) as commands:
    print("ready", flush=True)
    serve(memories, commands, sys.stdout, family)
for _ in family:
    if os.wait()[1] != 0:
        sys.exit("a child ended wrongly")
os._exit(0)
