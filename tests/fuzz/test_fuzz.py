"""A real broker bears what strangers send; and the fuzzer notices a broker that does not."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from protocol.registry import API
from protocol.wire import NO_VERSIONS
from tests.fuzz.frames import draw_frames
from tests.fuzz.fuzzing import BrokerHurt, Fuzzing
from tests.fuzz.target import fuzzed_cluster

FRAMES = 20_000
SEED = 18


def test_every_api_and_version_is_drawn() -> None:
    drawn = {
        (int.from_bytes(frame.data[4:6], "big"), int.from_bytes(frame.data[6:8], "big"))
        for frame in islice(draw_frames(SEED), FRAMES)
    }
    for api in API.values():
        if api.served != NO_VERSIONS:
            for version in range(api.served.first, api.served.last + 1):
                assert (api.key, version) in drawn


def test_seed_draws_the_same_frames_again() -> None:
    assert list(islice(draw_frames(7), 500)) == list(islice(draw_frames(7), 500))


async def test_broker_bears_what_strangers_send(tmp_path: Path) -> None:
    with fuzzed_cluster(tmp_path / "cluster") as cluster:
        host, _, port = cluster.address("bootstrap").partition(":")
        log = tmp_path / "cluster" / "broker-0.log"
        fuzzing = Fuzzing(host, int(port), cluster.pid("broker-0"), log, SEED)
        await fuzzing.send(FRAMES)
        assert fuzzing.counts["sent"] == FRAMES
        assert fuzzing.counts["answered"] > FRAMES / 4
        assert fuzzing.counts["closed"] > 100

        # A failure that is logged, and a broker that is gone, are noticed.
        with log.open("a") as more:
            more.write("ERROR a failure\n")
        with pytest.raises(BrokerHurt, match="ERROR a failure"):
            await fuzzing._check(FRAMES)
        cluster.kill("broker-0")
        with pytest.raises(BrokerHurt, match="gets no answer"):
            await fuzzing._check(FRAMES)
