"""Group, aggregate and sort arrays in numpy, and check the sums against the arrays they came of."""
import numpy


def make():
    random = numpy.random.default_rng(1)
    return random.integers(0, max(rows // 10, 1), rows), random.integers(0, 1000, rows)


def group_by(key, value):
    order = numpy.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = numpy.flatnonzero(numpy.concatenate(([True], key[1:] != key[:-1])))
    return numpy.add.reduceat(value, first), numpy.maximum.reduceat(value, first)


key, value = phase("make", make)
total = int(value.sum())
sums, most = phase("group_by", lambda: group_by(key, value))
ordered = phase("sort", lambda: numpy.sort(value * rows + key))


def verify():
    assert int(sums.sum()) == total and int(most.max()) == int(value.max()), "wrong groups"
    assert bool((ordered[1:] >= ordered[:-1]).all()), "wrong order"
    assert int(ordered.sum()) == total * rows + int(key.sum()), "wrong content"
    assert int(value.sum()) == total, "the array has changed"


phase("verify", verify)
