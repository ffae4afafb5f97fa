"""Members beside malformed ones, and beside those of another strategy."""

import asyncio
import logging

import pytest

from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.membership_errors import MalformedMember, StrategyConflict
from tests.groups.zookeeper.member.scene import Scene, play
from zk.znodes import ConsumerRegistration


def test_a_malformed_neighbour_is_named_to_who_waits_and_the_member_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        admin = await work.session()
        path = ConsumerRegistration.path("g", "g_broken")
        await admin.create(path, b"{", make_parents=True)
        member, streams = await work.member("a")
        problems: list[str | None] = []
        member.on_problem = problems.append
        with pytest.raises(MalformedMember, match=path):
            await member.join()
        await asyncio.sleep(60)
        assert len(problems) == 1
        assert streams.delivering == {}

        await admin.delete(path)
        await asyncio.sleep(0.2)
        assert len(streams.delivering) == 2
        assert problems[1:] == [None]

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert caplog.text.count(ConsumerRegistration.path("g", "g_broken")) == 1


def test_a_neighbour_that_becomes_malformed_costs_nobody_what_it_owns() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, streams = await work.member("a")
        await member.join()
        admin = await work.session()
        await admin.create(ConsumerRegistration.path("g", "g_broken"), b"{")
        await asyncio.sleep(60)
        assert len(streams.delivering) == 2
        other, other_streams = await work.member("b")
        with pytest.raises(MalformedMember):
            await other.join()
        assert other_streams.delivering == {}
        await other.leave()

    play(scene)


def test_clustered_members_go_together_and_refuse_one_that_could_be_on_the_jvm() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        members = [await work.member(name, CLUSTERED) for name in "ab"]
        for member, _ in members:
            await member.join()
        await asyncio.sleep(1)
        assert [len(streams.delivering) for _, streams in members] == [2, 2]
        jvm, _ = await work.member("jvm")
        with pytest.raises(StrategyConflict, match="strategy=clustered"):
            await jvm.join()
        await jvm.leave()
        path = ConsumerRegistration.path("g", "g_jvm")
        assert await jvm.tree.zk.exists(path) is None

    play(scene)


def test_a_clustered_member_does_not_stay_in_a_group_with_jvm_members() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        jvm, streams = await work.member("jvm")
        await jvm.join()
        clustered, _ = await work.member("c", CLUSTERED)
        with pytest.raises(StrategyConflict, match=r"the member g_jvm: .* as those of JVM members"):
            await clustered.join()
        await asyncio.sleep(1)
        assert len(streams.delivering) == 4
        assert jvm.is_settled

    play(scene)
