"""Transactions of stock clients and ours on real processes, with one fault of each kind.

`make chaos TRANSACTIONS=1` has more.
"""

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.transactions.clients import PRODUCERS, READERS, missing_tool
from tests.chaos.transactions.faults import FIRST
from tests.chaos.transactions.story import Story
from zk.embedded import ZkServerError, find_jars, find_java


def test_each_transaction_is_whole_or_not_there_whatever_goes_wrong(tmp_path: Path) -> None:
    try:
        find_java(), find_jars()
    except ZkServerError as error:
        pytest.skip(f"missing tool: {error}")
    missing = missing_tool([*PRODUCERS, *READERS])

    story = Story(tmp_path, random.randrange(10_000), 0, broker_faults=FIRST, once=True)
    asyncio.run(story.tell())

    assert story.verdict.wrong == [], "\n".join([*story.told, *story.lines()])
    assert story.repeater.repeated, "requests came twice"
    if missing is not None:
        pytest.skip(f"{missing}; all else is well, without those clients")
