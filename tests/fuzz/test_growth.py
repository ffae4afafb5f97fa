"""What a request can have very much of costs a real broker little, while it comes and afterwards.

`make fuzz` grows more things. Here are the heaviest, with bounds that hold on any machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzzing import GROWTH_BYTES, Fuzzing
from tests.fuzz.growth import GROWTHS, SETTINGS, Cost, Growing
from tests.fuzz.target import fuzzed_cluster

BY_NAME = {growth.name: growth for growth in GROWTHS}
LONGEST_TURN_S = 0.5
"""Of the processor, as the watchdog sees it: it took 8 to 46 s."""
PEAK_BYTES = 400 * 2**20
"""The largest request has 100 MB. Bombs took 3 GB a request."""
LOG_BYTES = 500_000
"""The watchdog's stacks among them. The names of one request took 45 MB."""


@pytest.mark.fault("security-0")
@pytest.mark.fault("security-3")
@pytest.mark.fault("security-5")
async def test_growth_of_each_kind_has_bounds(tmp_path: Path) -> None:
    with fuzzed_cluster(tmp_path / "cluster", SETTINGS) as (_, target):
        growing = Growing(Fuzzing(target, 0))
        await growing.prepare()

        async def measure(name: str) -> Cost:
            log_bytes = target.log.stat().st_size
            cost = await growing.measure(BY_NAME[name])
            assert cost.peak_bytes < PEAK_BYTES, name
            assert cost.kept_bytes < GROWTH_BYTES, name
            assert cost.turn_s < LONGEST_TURN_S, name
            assert target.log.stat().st_size < log_bytes + LOG_BYTES, name
            return cost

        # Nobody asks without end before a login, and what is all tagged fields is not read.
        assert (await measure("questions for versions before the login")).answered < 100
        for tagged in ("header", "body"):
            assert (await measure(f"tagged fields of a {tagged}")).answered == 0

        # Many names, and little that becomes much, are answered.
        for name in ("names of topics, refused", "names of groups", "keys of coordinators"):
            assert (await measure(name)).answered == 1
        for name in ("decompressed bytes", "noise that claims a codec"):
            assert (await measure(name)).answered == 4


@pytest.mark.fault("security-2")
async def test_what_is_begun_on_many_connections_has_bounds(tmp_path: Path) -> None:
    with fuzzed_cluster(tmp_path / "cluster", SETTINGS) as (_, target):
        growing = Growing(Fuzzing(target, 0))
        await growing.prepare()
        for name in ("half frames before the login", "half logins", "half handshakes of TLS"):
            cost = await growing.measure(BY_NAME[name])
            assert cost.answered == 0, name
            assert cost.peak_bytes < PEAK_BYTES, name
            assert cost.kept_bytes < GROWTH_BYTES, name
            assert cost.turn_s < LONGEST_TURN_S, name
