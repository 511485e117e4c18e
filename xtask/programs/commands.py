# Writes commands for redis, in its protocol: keys are set, and then read, the first of them most often.
import random

KEYS = 300_000
READS = 1_400_000
VALUE_BYTES = 300


def command(*words):
    parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    print(f"*{len(words)}\r\n{parts}", end="")


chance = random.Random(7)
for key in range(KEYS):
    command("SET", f"key:{key}", chance.randbytes(VALUE_BYTES * 2 // 5).hex() + "-" * (VALUE_BYTES // 5))
for read in range(READS):
    # A short reply: `redis-cli --pipe` takes ever longer where many long ones wait for it.
    command("GETRANGE", f"key:{int(KEYS * chance.random() ** 3)}", "100", "107")
