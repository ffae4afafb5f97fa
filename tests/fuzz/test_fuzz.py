"""A real broker bears what strangers send; and the fuzzer notices a broker that does not."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from protocol.api_key import ApiKey
from protocol.registry import API
from protocol.wire import NO_VERSIONS
from tests.fuzz.conversations import Way, draw_conversations
from tests.fuzz.frames import MAX_BENT_BYTES, NEEDS_A_SOUND_HEAD, bend, draw_bent
from tests.fuzz.fuzzing import BrokerHurt, Fuzzing
from tests.fuzz.target import fuzzed_cluster

FRAMES = 20_000
CONVERSATIONS = 2_000
SEED = 18


def test_every_api_and_version_is_drawn_before_and_after_logins() -> None:
    drawn: dict[Way, set[tuple[int, int]]] = {way: set() for way in Way}
    for conversation in islice(draw_conversations(SEED), CONVERSATIONS):
        for frame in conversation.frames:
            key, version = (int.from_bytes(frame.data[at : at + 2], "big") for at in (4, 6))
            drawn[conversation.way].add((key, version))

    served = {
        (api.key, version)
        for api in API.values()
        if api.served != NO_VERSIONS
        for version in range(api.served.first, api.served.last + 1)
    }
    assert served <= drawn[Way.PLAINTEXT]
    assert served <= drawn[Way.LOGGED_IN] | drawn[Way.SESSION_ENDS]
    for way in (Way.BEFORE_LOGIN, Way.SESSION_ENDS, Way.SESSION_OVER):
        assert {(ApiKey.SASL_HANDSHAKE, 0), (ApiKey.SASL_AUTHENTICATE, 2)} <= drawn[way]


def test_seed_draws_the_same_conversations_again() -> None:
    assert list(islice(draw_conversations(7), 100)) == list(islice(draw_conversations(7), 100))


def test_bytes_that_are_doubled_again_and_again_have_a_bound() -> None:
    # This seed would make 11 MB of them.
    bent = bend(random.Random(1798), bytearray(1000))
    assert 1000 < len(bent) <= MAX_BENT_BYTES


def test_a_bent_request_does_not_become_one_of_a_controller() -> None:
    """One in a million had a later epoch, and the broker heeded its own controller no more."""
    rng = random.Random(1)
    sound = b"\0\0\0\x10\0\x03" + bytes(14)
    keys = {int.from_bytes(draw_bent(rng, sound).data[4:6], "big") for _ in range(100_000)}
    assert len(keys) > 200
    assert keys.isdisjoint(NEEDS_A_SOUND_HEAD)


async def test_broker_bears_what_strangers_send(tmp_path: Path) -> None:
    with fuzzed_cluster(tmp_path / "cluster") as (cluster, target):
        fuzzing = Fuzzing(target, SEED)
        await fuzzing.send(FRAMES)
        assert fuzzing.counts["answered"] > FRAMES / 4
        assert fuzzing.counts["closed"] > 100
        assert min(fuzzing.ways[way] for way in Way) > FRAMES / 1000

        # A failure that is logged, and a broker that is gone, are noticed.
        with target.log.open("a") as more:
            more.write("ERROR a failure\n")
        with pytest.raises(BrokerHurt, match="ERROR a failure"):
            await fuzzing._check()
        cluster.kill("broker-0")
        with pytest.raises(BrokerHurt, match="gets no answer"):
            await fuzzing._check()
