# DuckDB: a table in memory and queries on it: sums by key, a join, and a sort of a part.
import duckdb

ROWS = 5_000_000
QUERIES = 10

base = duckdb.connect(":memory:")
base.execute("SET threads = 1")
base.execute("SET memory_limit = '8GB'")
base.execute(
    f"CREATE TABLE sales AS SELECT range AS id, hash(range) % 100000 AS key, hash(range * 3) AS price,"
    f" 'customer ' || (hash(range * 7) % 1000000) AS customer FROM range({ROWS})"
)
for query in range(QUERIES):
    part = ROWS // QUERIES * query
    print(
        base.execute(
            "SELECT sum(total) FROM (SELECT key, sum(price % 1000) AS total FROM sales GROUP BY key)"
        ).fetchone(),
        base.execute(
            "SELECT count(*) FROM sales a JOIN sales b ON a.key = b.key"
            f" WHERE a.id < 20000 AND b.id BETWEEN {part} AND {part} + 400000"
        ).fetchone(),
        base.execute(
            f"SELECT customer FROM sales WHERE id >= {part} AND id < {part} + 300000 ORDER BY price LIMIT 1"
        ).fetchone(),
    )
