"""Group, aggregate and sort a table in DuckDB, and check the sums against the columns they came of."""
import json
import sys
import time

import duckdb

rows = int(sys.argv[1])
database = duckdb.connect(":memory:")
# What does not fit is to be swapped, not written to files.
database.execute("SET temp_directory = ''; SET memory_limit = '64GB'")


def phase(name, query):
    begun = time.perf_counter()
    result = database.execute(query).fetchall()
    wall_s = time.perf_counter() - begun
    line = {"phase": name, "pages": rows, "wall_s": wall_s, "us_per_op": wall_s * 1e6 / rows}
    print(json.dumps(line), flush=True)
    return result


numbers = f"SELECT hash(i) % {max(rows // 10, 1)} AS key, hash(i * 7) % 1000 AS value FROM range({rows}) AS r(i)"
phase("make", f"CREATE TABLE t AS {numbers}")
phase(
    "group_by",
    "CREATE TABLE g AS SELECT key, sum(value) AS total, count(*) AS n, max(value) AS most FROM t GROUP BY key",
)
phase("sort", "CREATE TABLE s AS SELECT * FROM t ORDER BY value, key")
[(same_sum, same_count, same_order)] = phase(
    "verify",
    "SELECT (SELECT sum(total) FROM g) = (SELECT sum(value) FROM t), (SELECT sum(n) FROM g) = (SELECT count(*) FROM t),"
    " (SELECT sum(value) FROM s) = (SELECT sum(value) FROM t)",
)
assert same_sum and same_count, "wrong groups"
assert same_order, "wrong order"
