"""Two minutes of everything that can go wrong, on real processes. `make chaos` has more."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.stock_group import STOCK_KINDS, missing_tool
from tests.chaos.story import Story, told_for_people
from zk.embedded import ZkServerError, find_jars, find_java

SECONDS_OF_FAULTS = 75


def test_nothing_acknowledged_is_lost_whatever_goes_wrong(tmp_path: Path) -> None:
    try:
        find_java(), find_jars()
    except ZkServerError as error:
        pytest.skip(f"missing tool: {error}")
    missing = missing_tool(STOCK_KINDS)
    kinds = STOCK_KINDS if missing is None else ()
    story = Story(tmp_path, random.randrange(10_000), SECONDS_OF_FAULTS, kinds)
    report = asyncio.run(story.tell())
    assert report.verdict.wrong == [], told_for_people(story, report)
    if missing is not None:
        pytest.skip(f"{missing}; all else is well, without a group of stock consumers")
