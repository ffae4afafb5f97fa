"""`make scale`: how costs grow with the number of what is worked on.

    python -m tests.scale                 all rows, at 100, 1,000 and 10,000
    python -m tests.scale 100:1000        at these sizes
    python -m tests.scale 100:1000 Fetch  the rows that have this in their names

Prints a line for each row as it is done. Exit code 1 when a cost grows faster than linearly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tests.scale.cost import complaints
from tests.scale.table import ALL_ROWS


def main(arguments: Sequence[str]) -> int:
    """Measure the rows that are wanted, at the sizes that are wanted."""
    wanted_sizes = [argument for argument in arguments if argument[0].isdigit()]
    sizes = tuple(map(int, wanted_sizes[0].split(":"))) if wanted_sizes else None
    words = [argument for argument in arguments if not argument[0].isdigit()]
    grown = 0

    for row in ALL_ROWS:
        if not all(word in row.name for word in words):
            continue
        began_s = time.process_time()
        costs = {size: row.measure(size) for size in sizes or row.sizes}
        print(f"{row.name}  ({time.process_time() - began_s:.0f} s)")
        for size, cost in costs.items():
            print(
                f"  {size:6}  {cost.calls:11,} calls  {cost.turn:9,} in a turn"
                f"  {cost.requests:7,} requests  {cost.zookeeper:7,} to ZooKeeper"
                f"  {cost.kept:9,} blocks kept"
            )
        found = complaints(costs, row.turn_bound)
        for complaint in found:
            print(f"  GROWS  {complaint}")
        grown += bool(found)
        sys.stdout.flush()

    print(f"{grown} of {len(ALL_ROWS)} rows grow faster than linearly")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
