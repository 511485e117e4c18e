"""Group, aggregate and sort a table in DuckDB, and check the sums against the columns they came of."""
import duckdb

database = duckdb.connect(":memory:")
# What does not fit is to be swapped, not written to files.
database.execute("SET temp_directory = ''; SET memory_limit = '64GB'")
NUMBERS = f"SELECT hash(i) % {max(rows // 10, 1)} AS key, hash(i * 7) % 1000 AS value FROM range({rows}) AS r(i)"
GROUPS = "SELECT key, sum(value) AS total, count(*) AS n, max(value) AS most FROM t GROUP BY key"
SAME_SUMS = """
    SELECT (SELECT sum(total) FROM g) = (SELECT sum(value) FROM t), (SELECT sum(n) FROM g) = (SELECT count(*) FROM t),
        (SELECT sum(value) FROM s) = (SELECT sum(value) FROM t)
"""
# Rows of one value lie together, and behind those of smaller ones.
PLACES = "SELECT min(rowid), max(rowid) FROM s GROUP BY value ORDER BY value"


def query(text):
    return database.execute(text).fetchall()


phase("make", lambda: query(f"CREATE TABLE t AS {NUMBERS}"))
phase("group_by", lambda: query(f"CREATE TABLE g AS {GROUPS}"))
phase("sort", lambda: query("CREATE TABLE s AS SELECT * FROM t ORDER BY value, key"))
[sums], places = phase("verify", lambda: (query(SAME_SUMS), query(PLACES)))
assert all(sums), "wrong groups or content"
assert all(before[1] < after[0] for before, after in zip(places, places[1:])), "wrong order"
