# What the scripts share, put behind the first line of each: how many rows, and a line for each phase.
import json
import sys
import time

rows = int(sys.argv[1])


def phase(name, work):
    begun = time.perf_counter()
    result = work()
    wall_s = time.perf_counter() - begun
    line = {"phase": name, "pages": rows, "wall_s": wall_s, "us_per_op": wall_s * 1e6 / rows}
    print(json.dumps(line), flush=True)
    return result
