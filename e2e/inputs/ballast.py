"""Holds much compressible memory while another command runs, and verifies it afterwards.

usage: ballast.py MIB COMMAND [ARGUMENT...]

It makes the need of a run large where the command's own content does not compress: that content must stay in memory,
so only what is beside it can go.
"""

import hashlib
import subprocess
import sys

PAGE = 4096


def content(number):
    return hashlib.blake2b(str(number).encode(), digest_size=64).digest()


pages = int(sys.argv[1]) * 256
memory = bytearray(pages * PAGE)
for number in range(pages):
    memory[number * PAGE : number * PAGE + 64] = content(number)

# With close_fds off and no hooks this is posix_spawn or vfork: the child shares this memory until its exec.
ended = subprocess.run(sys.argv[2:], close_fds=False)

for number in range(pages):
    start = number * PAGE
    if memory[start : start + 64] != content(number) or any(memory[start + 64 : start + 128]):
        raise SystemExit(f"page {number} of the ballast is wrong")
print("ballast right")
sys.exit(ended.returncode if ended.returncode >= 0 else 128 - ended.returncode)
