"""Large dicts and lists: build, look everything up in another order, delete a part, build again, verify."""

RECORDS = 450_000
STRIDE = 7_919  # prime to RECORDS: visits every record, far apart each time


def name(number):
    return f"customer-{number:09d}"


def row(number):
    text = f"order {number * 7 % RECORDS:09d} of the northern freight line, delivered before noon, paid in full, "
    return [number, number * 3 % 1000, text + "thirty days net, no complaint, to be shipped again next month", None]


def verify(table, numbers):
    total = 0
    for number in numbers:
        got = table[name(number)]
        if got != row(number):
            raise SystemExit(f"record {number} is {got}")
        total += got[1]
    return total


table = {name(number): row(number) for number in range(RECORDS)}
print("built", len(table))
print("in order", verify(table, range(RECORDS)))
print("far apart", verify(table, (step * STRIDE % RECORDS for step in range(0, RECORDS, 10))))

for number in range(0, RECORDS, 2):
    del table[name(number)]
print("half", len(table), verify(table, range(1, RECORDS, 2)))
for number in range(0, RECORDS, 2):
    table[name(number)] = row(number)
print("whole", len(table), verify(table, range(RECORDS)))

numbers = [number * STRIDE % RECORDS for number in range(RECORDS)]
numbers.sort()
if numbers != list(range(RECORDS)):
    raise SystemExit("the sorted list is not 0..RECORDS")
print("right")
