# A program that is attached to while it runs. It keeps seeded content, which three threads verify all the time, and
# does what it reads from a pipe, a line each:
#
#   grow MIB    more of the same content
#   fork        a child that verifies all of it
#   orphan      a child that is left behind, verifies again and again, and ends with the pipe
#   check       verify all of it
#   quit
#
# usage: attach.py MIB PIPE
# It prints what it has done, and "WRONG" where a page is not what it was.
import hashlib
import os
import random
import sys
import threading

PAGES = 256


def block(number):
    # An eighth is noise, so that it compresses, but not to nothing.
    return hashlib.shake_256(str(number).encode()).digest(512) + bytes([number % 251]) * 3584


def mebibyte(index):
    return bytearray().join(block(index * PAGES + page) for page in range(PAGES))


def is_right(index, page):
    return data[index][page * 4096:(page + 1) * 4096] == block(index * PAGES + page)


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def verify_all():
    for index in range(len(data)):
        for page in range(PAGES):
            if not is_right(index, page):
                say("WRONG", index, page)
                return False
    return True


def watch(seed):
    choice = random.Random(seed)
    while not ended.is_set():
        index, page = choice.randrange(len(data)), choice.randrange(PAGES)
        if not is_right(index, page):
            say("WRONG", index, page)


data = [mebibyte(index) for index in range(int(sys.argv[1]))]
ended = threading.Event()
threads = [threading.Thread(target=watch, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
say("ready", os.getpid())
pipe = open(sys.argv[2])
for line in pipe:
    command, *rest = line.split()
    if command == "grow":
        data.extend([mebibyte(index) for index in range(len(data), len(data) + int(rest[0]))])
    elif command == "fork":
        child = os.fork()
        if child == 0:
            os._exit(0 if verify_all() else 1)
        if os.waitpid(child, 0)[1]:
            say("WRONG child")
    elif command == "orphan":
        if os.fork() == 0:
            child = os.fork()
            if child:
                say("orphan", child)
            else:
                for _ in pipe:
                    pass
                say("orphan is right" if verify_all() else "WRONG orphan")
            os._exit(0)
        os.wait()
    elif command == "check":
        verify_all()
    elif command == "quit":
        break
    say("done", line.strip())
ended.set()
for thread in threads:
    thread.join()
say("end")
