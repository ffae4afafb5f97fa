"""What members do about nodes that others delete, refuse or hide."""

import asyncio
from collections import Counter

import pytest

from groups.zookeeper.membership_errors import ConsumerRebalanceFailed
from tests.groups.zookeeper.member.scene import OWNERS, Scene, Watched, play
from zk.znodes import ConsumerRegistration, PartitionOwner


@pytest.mark.parametrize("removed", ["/consumers/g", "/consumers/g/ids", "/consumers/g/owners"])
def test_a_member_whose_group_somebody_removes_is_in_it_again_within_the_audit(
    removed: str,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        first, streams = await work.member("a")
        await first.join()
        await (await work.session()).delete_recursive(removed)
        await asyncio.sleep(12)
        assert await first.tree.zk.exists(ConsumerRegistration.path("g", "g_a"))
        second, other_streams = await work.member("b")
        await second.join()
        await asyncio.sleep(1)
        assert len(streams.delivering) == len(other_streams.delivering) == 2
        assert not streams.delivering.keys() & other_streams.delivering.keys()

    play(scene)


def test_a_claim_that_zookeeper_refuses_is_tried_again_after_a_pause_and_reported() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        admin = await work.session()
        await admin.ensure_path(OWNERS)
        work.zk.read_only.add(OWNERS)
        member, streams = await work.member("a")
        calls: Counter[str] = Counter()
        member.tree.zk = Watched(member.tree.zk, calls)  # type: ignore[assignment]
        problems: list[str | None] = []
        member.on_problem = problems.append
        with pytest.raises(ConsumerRebalanceFailed, match=rf"NoAuth {OWNERS}/0"):
            await member.join()
        tries = member.membership.settings.rebalance_max_retries
        assert calls["multi"] == tries
        assert len(problems) == 1

        work.zk.read_only.clear()
        await asyncio.sleep(3)
        assert len(streams.delivering) == 4
        assert problems[1:] == [None]

    play(scene)


def test_a_release_that_zookeeper_refuses_is_reported_and_tried_again() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        first, streams = await work.member("a")
        await first.join()
        problems: list[str | None] = []
        first.on_problem = problems.append
        work.zk.read_only.add(OWNERS)
        second, other_streams = await work.member("b")
        joining = asyncio.ensure_future(second.join())
        await asyncio.sleep(12)
        assert "ReleaseOwners: NoAuth" in str(problems[-1])
        assert other_streams.delivering == {}

        work.zk.read_only.clear()
        await asyncio.sleep(5)
        await asyncio.gather(joining, return_exceptions=True)
        assert len(streams.delivering) == len(other_streams.delivering) == 2
        assert problems[-1] is None

    play(scene)


def test_who_leaves_when_somebody_has_deleted_its_registration_leaves_no_owner_node() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, _ = await work.member("a")
        await member.join()
        await (await work.session()).delete(ConsumerRegistration.path("g", "g_a"))
        await member.leave()
        assert work.zk.tree[OWNERS].children == frozenset()

    play(scene)


def test_who_reads_no_offset_leaves_its_share_to_others_and_comes_back_when_it_does() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        first, streams = await work.member("a")
        await first.join()
        second, other_streams = await work.member("b")
        other_streams.offsets_trouble = "no coordinator"
        with pytest.raises(ConsumerRebalanceFailed, match="out of the group until"):
            await second.join()
        await asyncio.sleep(60)
        assert len(streams.delivering) == 4
        assert work.zk.tree["/consumers/g/ids"].children == {"g_a"}
        other_streams.offsets_trouble = ""
        await asyncio.sleep(5)
        assert len(streams.delivering) == len(other_streams.delivering) == 2

    play(scene)


def test_when_nobody_reads_an_offset_all_come_back_as_soon_as_they_can() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(4)
        members = [await work.member(name) for name in "ab"]
        for _, streams in members:
            streams.offsets_trouble = "no coordinator"
        joining = [asyncio.ensure_future(member.join()) for member, _ in members]
        await asyncio.sleep(300)
        for _, streams in members:
            streams.offsets_trouble = ""
        await asyncio.sleep(5)
        assert [len(streams.delivering) for _, streams in members] == [2, 2]
        await asyncio.gather(*joining, return_exceptions=True)

    play(scene)


def test_an_owner_node_that_somebody_deletes_is_there_again_within_the_audit() -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        member, _ = await work.member("a")
        await member.join()
        path = PartitionOwner.path("g", "t", 0)
        await (await work.session()).delete(path)
        await asyncio.sleep(12)
        assert await member.tree.zk.exists(path)

    play(scene)


def test_a_listener_that_ends_a_task_and_waits_for_it_costs_no_membership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(2)
        first, streams = await work.member("a")
        await first.join()
        worker = streams.ends_when_releasing = asyncio.create_task(asyncio.sleep(3600))
        second, other_streams = await work.member("b")
        await second.join()
        await asyncio.sleep(1)
        assert worker.cancelled()
        assert first.is_settled
        assert len(streams.delivering) == len(other_streams.delivering) == 1
        await first.leave()

    play(scene)
    assert "the rebalance listener was cancelled" in caplog.text


def test_offsets_that_cannot_be_read_for_minutes_are_worth_a_line_and_their_end_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(work: Scene) -> None:
        await work.topic(5)
        member, streams = await work.member("a")
        streams.offsets_trouble = "no coordinator"
        joining = asyncio.ensure_future(member.join())
        await asyncio.sleep(6)
        assert streams.diary.count("fetch_offsets") > 2
        streams.offsets_trouble = ""
        await asyncio.wait({joining}, timeout=60)
        await asyncio.sleep(10)
        texts = [f"offset of t-{number}: no coordinator" for number in range(3)]
        first = "g_a: " + "; ".join([*texts, "and of 2 more"])
        last = "g_a: all offsets can be read again"
        assert [text for text in caplog.messages if text in (first, last)] == [first, last]
        await member.leave()

    play(scene)
