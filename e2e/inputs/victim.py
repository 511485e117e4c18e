"""A program to be killed: fills memory, forks on request, then verifies all of it again and again and logs each pass.

usage: victim.py LOG MIB CHILDREN PASSES EXIT_STATUS

Every page has content; a page that reads as anything else is logged as WRONG. PASSES 0 goes on for ever. The log is
written with single write calls, so a line in it is whole.
"""

import os
import sys

PAGE = 4096
log_path, mib, children, passes, exit_status = sys.argv[1], *map(int, sys.argv[2:6])
log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
pages = mib * 256


def say(text):
    os.write(log, f"{os.getpid()} {text}\n".encode())


def content(number):
    return b"page %012d of the victim\0" % number * 8


def verify(who, number_of_pass):
    for number in range(pages):
        start = number * PAGE
        expected = content(number)
        found = memory[start : start + len(expected)]
        if found != expected:
            zeros = not any(found)
            say(f"WRONG {who} page {number} pass {number_of_pass}{' is zeros' if zeros else ''}")
            os._exit(99)
    say(f"pass {number_of_pass} {who}")


memory = bytearray(pages * PAGE)
say("filling")
for number in range(pages):
    text = content(number)
    memory[number * PAGE : number * PAGE + len(text)] = text
say("filled")

born = []
for number in range(children):
    child = os.fork()
    if child == 0:
        number_of_pass = 0
        while True:
            verify(f"child {number}", number_of_pass)
            number_of_pass += 1
    born.append(child)
    say(f"forked {child}")

number_of_pass = 0
while passes == 0 or number_of_pass < passes:
    verify("parent", number_of_pass)
    number_of_pass += 1

for child in born:
    ended, status = os.waitpid(child, 0)
    say(f"child {ended} ended by signal {os.WTERMSIG(status)}")
verify("parent", number_of_pass)
say("right")
sys.exit(exit_status)
