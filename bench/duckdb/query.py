"""Make a table larger than memory in DuckDB, group it and sort it. Print the seconds of each, and what came out.

Usage: query.py ROWS MEMORY_LIMIT TEMP_DIRECTORY. DuckDB itself spills to the directory what is above the limit.
"""

import sys
import time
import zlib

import duckdb

rows, limit, directory = int(sys.argv[1]), sys.argv[2], sys.argv[3]
database = duckdb.connect()
database.execute(f"set memory_limit = '{limit}'")
database.execute(f"set temp_directory = '{directory}'")
database.execute("set threads = 2")
database.execute("set preserve_insertion_order = false")

QUERIES = {
    "make": f"""create table t as
        select hash(i) % 1000000 as k, i as n, md5(i::varchar) as s from range({rows}) r(i)""",
    "group": """select count(*), sum(c), max(m), sum(hash(m) % 1000) from (
        select k, count(*) c, max(s) m from t group by k)""",
    "sort": """select sum(n % 1000 * (place % 1000)) from (
        select n, row_number() over (order by s) as place from t)""",
    "scan": "select sum(k), sum(n), max(s) from t",
}

answers = []
for name, query in QUERIES.items():
    began = time.monotonic()
    answer = database.execute(query).fetchall()
    print(f"{name} {time.monotonic() - began:.2f}", end=" ")
    answers.append(answer)
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(f"peak_mib {peak // 1024} answers {zlib.crc32(str(answers[1:]).encode()):x}")
