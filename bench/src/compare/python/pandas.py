"""Group, aggregate and sort a table in pandas, and check the sums against the columns they came of."""
import numpy
import pandas


def make():
    random = numpy.random.default_rng(1)
    columns = {"key": random.integers(0, max(rows // 10, 1), rows), "value": random.integers(0, 1000, rows)}
    return pandas.DataFrame(columns)


table = phase("make", make)
total = int(table["value"].sum())
groups = phase("group_by", lambda: table.groupby("key")["value"].agg(["sum", "count", "max"]))
ordered = phase("sort", lambda: table.sort_values(["value", "key"], ignore_index=True))


def verify():
    assert int(groups["sum"].sum()) == total and int(groups["count"].sum()) == rows, "wrong groups"
    assert int(ordered["value"].sum()) == total and ordered["value"].is_monotonic_increasing, "wrong order"
    assert int(table["value"].sum()) == total, "the table has changed"


phase("verify", verify)
