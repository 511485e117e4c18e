# Writes one large file of C: functions with loops and branches that call one another.
import random

FUNCTIONS = 300

chance = random.Random(7)
print("extern int table[4096];")
for number in range(FUNCTIONS):
    print(f"int f{number}(int a, int b) {{ int c = {chance.randrange(1000)};")
    for line in range(12):
        one, other = chance.randrange(4096), chance.randrange(1, 100)
        print(f"  for (int i = a; i < b + {other}; i++) c += table[(i * {other} + {one}) & 4095] ^ (c >> {line});")
        print(f"  if (c % {other + 1} == {line}) {{ table[{one}] = c; a += {other}; }}")
    called = chance.randrange(max(number, 1))
    print(f"  return c + {f'f{called}(b, a)' if number else 'a'}; }}")
