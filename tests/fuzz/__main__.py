"""`make fuzz`: a million frames, sound and bent, before and after logins, to a real broker.

Before them each thing that a request can have is grown by itself, to its bound and beyond.

    python -m tests.fuzz --frames 1000000 --seed 42 [--data DIR]

Exit code 1 when the broker is gone, does not answer a new client, grows, computes for too long in
a turn of its loop, or logs a failure.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.fuzz.fuzzing import BrokerHurt, Fuzzing
from tests.fuzz.growth import GROWTHS, SETTINGS, grow
from tests.fuzz.target import fuzzed_cluster


def main() -> int:
    """Send the frames, and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--data", type=Path, help="an empty directory; default: a temporary one")
    arguments = parser.parse_args()
    directory = arguments.data or Path(tempfile.mkdtemp(prefix="fuzz-"))

    with fuzzed_cluster(directory / "growth", SETTINGS) as (_, target):
        try:
            asyncio.run(grow(Fuzzing(target, arguments.seed), GROWTHS, partial(print, flush=True)))
        except BrokerHurt as hurt:
            print(f"hurt: {hurt}")
            return 1

    with fuzzed_cluster(directory / "frames") as (_, target):
        fuzzing = Fuzzing(target, arguments.seed, partial(print, flush=True))
        try:
            asyncio.run(fuzzing.send(arguments.frames))
        except BrokerHurt as hurt:
            print(f"hurt: {hurt}")
            return 1
    counts = ", ".join(f"{number:,} {what}" for what, number in fuzzing.counts.items())
    memory = f"{fuzzing.filled_bytes:,} bytes after a tenth, at most {fuzzing.most_bytes:,}"
    ways = ", ".join(f"{number:,} {way.name}" for way, number in fuzzing.ways.most_common())
    print(f"seed {arguments.seed}: {counts}; memory {memory}")
    print(ways)
    return 0


if __name__ == "__main__":
    sys.exit(main())
