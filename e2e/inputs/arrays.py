"""numpy: arrays far larger than the memory allowed; arithmetic, sorting, fancy indexing, a matrix product."""

import numpy as np

CELLS = 12_000_000
numbers = np.arange(CELLS, dtype=np.int64)

counts = (numbers >> 6) % 1000
print("counts", int(counts.sum()))
balance = counts * 2.0
print("balance", float(balance.sum()))
np.add(balance, 1.0, out=balance)
if not bool((balance == counts * 2 + 1).all()):
    raise SystemExit("balance is not 2 * counts + 1")
del balance

order = np.argsort(counts, kind="stable")
ordered = counts[order]
if not bool((ordered[1:] >= ordered[:-1]).all()):
    raise SystemExit("not sorted")
same = ordered[1:] == ordered[:-1]
if not bool(((order[1:] > order[:-1]) | ~same).all()):
    raise SystemExit("the sort was not stable")
if int(order.sum()) != CELLS * (CELLS - 1) // 2:
    raise SystemExit("the order is no permutation")
del order, ordered, same

if not bool((numbers == np.arange(CELLS, dtype=np.int64)).all()):
    raise SystemExit("the numbers have changed")
if not bool((counts == (numbers >> 6) % 1000).all()):
    raise SystemExit("the counts have changed")

side = np.arange(900) % 7
left = np.add.outer(side, side).astype(np.int64)
product = left @ left
print("product", int(product.sum()), int(product.trace()))
print("right")
