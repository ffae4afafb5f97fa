"""What a member is told of partitions that were lost with messages that are not committed."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from offsets.store_errors import CommitFailed
from protocol.errors import ErrorCode
from tests.clients.high_level.deliveries import P0, P1, Scene, play


def test_commit_behind_a_loss_fails_once_for_what_was_consumed_and_says_why() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.explain_loss = lambda: "its session has ended"
        work.delivery.start({P0: ("0", 5), P1: ("1", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.abandon()

        # Of the other partition nothing was consumed.
        why = "g_a does not own them: its session has ended"
        with pytest.raises(CommitFailed, match=why) as failure:
            await work.delivery.commit_offsets()
        assert failure.value.errors == {P0: ErrorCode.ILLEGAL_GENERATION}
        await work.delivery.commit_offsets()
        assert work.store.commits == []

    play(scene)


async def take_nothing(work: Scene) -> None:
    pass


async def take_some(work: Scene) -> None:
    position = work.delivery.positions()[P0].offset
    await work.consume(P0, position, position + 3)


async def lose_place(work: Scene) -> None:
    work.fetching[-1].lose_place(500)
    work.fetching[-1].reset(100)


async def ask_in_vain(work: Scene) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(anext(work.fetching[-1].stream), 1)


async def commit(work: Scene) -> None:
    await work.delivery.commit_offsets()


async def seek(work: Scene) -> None:
    work.delivery.seek(P0, 40)


async def move(work: Scene) -> None:
    work.delivery.move({P0: "1"})


Step = Callable[[Scene], Coroutine[Any, Any, None]]


@pytest.mark.parametrize(
    ("steps", "is_error"),
    [
        ([take_nothing], False),
        ([take_some], True),
        ([take_some, commit], False),
        ([lose_place], False),
        ([lose_place, move], False),
        ([lose_place, ask_in_vain], False),
        ([lose_place, take_some], True),
        ([lose_place, take_some, commit], False),
        ([lose_place, take_some, move], True),
        ([take_some, lose_place], True),
        ([take_some, lose_place, ask_in_vain], True),
        ([take_some, lose_place, commit], False),
        ([take_some, lose_place, commit, ask_in_vain], False),
        ([take_some, commit, lose_place], False),
        ([seek], False),
        ([seek, take_some], True),
        ([take_some, seek], True),
        ([take_some, move], True),
    ],
    ids=lambda value: ", ".join(s.__name__ for s in value) if isinstance(value, list) else "",
)
def test_a_loss_is_an_error_only_where_messages_were_consumed_and_not_committed(
    steps: list[Step], is_error: bool
) -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 500)})
        for step in steps:
            await step(work)
        work.delivery.abandon()
        expected = pytest.raises(CommitFailed) if is_error else contextlib.nullcontext()
        with expected:
            await work.delivery.commit_offsets()

    play(scene)


def test_what_was_lost_and_is_ours_again_is_consumed_again_and_no_error() -> None:
    async def scene() -> None:
        work = Scene()
        work.delivery.start({P0: ("0", 5)})
        await work.consume(P0, 5, 8)
        work.delivery.abandon()
        work.delivery.start({P0: ("0", 5)})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5}]

    play(scene)
