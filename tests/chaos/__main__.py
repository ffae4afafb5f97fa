"""`make chaos`: a cluster under load, and everything that can go wrong.

    python -m tests.chaos --minutes 10 --seed 42 [--data DIR]

Exit code 1 when anything was lost that was acknowledged, or was not as it should be.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from core_log import loop_guard
from tests.chaos.stock_group import STOCK_KINDS, missing_tool
from tests.chaos.story import Story, told_for_people


def main() -> int:
    """Tell a story, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--data", type=Path, help="an empty directory; default: a temporary one")
    arguments = parser.parse_args()
    directory = arguments.data or Path(tempfile.mkdtemp(prefix="chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        parser.error(f"{directory} is not empty")
    loop_guard.turn_on()
    missing = missing_tool(STOCK_KINDS)
    if missing is not None:
        print(f"no group of stock consumers: {missing}")
    kinds = STOCK_KINDS if missing is None else ()
    story = Story(directory, arguments.seed, arguments.minutes * 60, kinds)
    report = asyncio.run(story.tell())
    print(told_for_people(story, report))
    return 1 if report.verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
