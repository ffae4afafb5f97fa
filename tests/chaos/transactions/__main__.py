"""`make chaos TRANSACTIONS=1`: transactions of all kinds of clients, and what can go wrong.

    python -m tests.chaos.transactions --minutes 10 --seed 42 [--data DIR]
    python -m tests.chaos.transactions --brokers 2.8.2      # the same on stock brokers
    python -m tests.chaos.transactions --ends-come-late     # what the protocol leaves open

Exit code 1 when the judge has found something, or anything else was not as it should be.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from core_log import loop_guard
from tests.chaos.transactions.clients import PRODUCERS, READERS, missing_tool
from tests.chaos.transactions.faults import CLIENT_FAULTS
from tests.chaos.transactions.story import Story
from tests.interop.handover import OURS


def main() -> int:
    """Tell a story, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--data", type=Path, help="an empty directory; default: a temporary one")
    parser.add_argument(
        "--brokers", default=OURS, help="ours, or a release of Kafka; default: ours"
    )
    parser.add_argument("--ends-come-late", action="store_true")
    arguments = parser.parse_args()
    directory = arguments.data or Path(tempfile.mkdtemp(prefix="chaos-transactions-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        parser.error(f"{directory} is not empty")
    loop_guard.turn_on()
    missing = missing_tool([*PRODUCERS, *READERS])
    if missing is not None:
        print(f"not all stock clients: {missing}")

    only_requests = ("requests come twice",)
    story = Story(
        directory,
        arguments.seed,
        arguments.minutes * 60,
        client_faults=only_requests if arguments.ends_come_late else tuple(CLIENT_FAULTS),
        make=arguments.brokers,
        ends_come_late=arguments.ends_come_late,
    )
    asyncio.run(story.tell())
    print("\n".join(story.lines()))
    if story.verdict.wrong:
        story.keep_history()
        print(f"everything is in {directory}")
    return 1 if story.verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
