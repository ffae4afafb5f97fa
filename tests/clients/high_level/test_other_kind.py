"""Members of the other kind in a group: refused at the start, named once a minute later."""

import asyncio
import logging
from collections.abc import Sequence

import attrs
import pytest

from clients.errors import ConnectionFailed, MembershipConflict
from clients.high_level.other_kind import LOOK_INTERVAL_S, ZOOKEEPER_KIND, OtherKind
from tests.stage.clock import run_in_virtual_time


@attrs.define
class Looks:
    """What each look brings, the last one again and again; and what was seen."""

    results: list[Sequence[str] | Exception]
    seen: list[str] = attrs.field(factory=list)

    def kind(self) -> OtherKind:
        return OtherKind("g", ZOOKEEPER_KIND, self._find, self.seen.append)

    async def _find(self) -> Sequence[str]:
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


def test_member_refuses_to_start_beside_members_of_the_other_kind_and_names_them() -> None:
    looks = Looks([["g_a", "g_b", "g_c", "g_d", "g_e"]])
    with pytest.raises(MembershipConflict) as refusal:
        run_in_virtual_time(looks.kind().refuse())
    assert str(refusal.value) == (
        "group g has members in ZooKeeper too (g_a, g_b, g_c and 2 more), so that its partitions "
        "would be consumed twice; stop them, or set membership=zookeeper"
    )


@pytest.mark.parametrize("result", [(), ConnectionFailed("b", 1, "away")])
def test_member_that_sees_none_or_cannot_look_starts(result: Sequence[str] | Exception) -> None:
    run_in_virtual_time(Looks([result]).kind().refuse())


def test_look_that_hangs_does_not_keep_a_member_from_starting() -> None:
    async def scene() -> None:
        async def find() -> Sequence[str]:
            await asyncio.Event().wait()
            return ()

        await OtherKind("g", ZOOKEEPER_KIND, find, lambda sentence: None).refuse()

    run_in_virtual_time(scene())


def test_members_that_come_later_are_a_warning_once_a_minute_and_one_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(looks: Looks) -> None:
        watching = asyncio.create_task(looks.kind().watch())
        await asyncio.sleep(LOOK_INTERVAL_S * 7.5)
        watching.cancel()

    # They come in the second minute, go in the fourth, and come again in the sixth.
    looks = Looks([(), ["g_a"], ["g_a"], (), ConnectionFailed("b", 1, "away"), ["g_b"]])
    with caplog.at_level(logging.WARNING):
        run_in_virtual_time(scene(looks))
    warnings = [record.getMessage() for record in caplog.records]
    assert [warning.split("(")[1].split(")")[0] for warning in warnings] == [
        *("g_a", "g_a"),
        *("g_b", "g_b"),
    ]
    assert [sentence.split("(")[1].split(")")[0] for sentence in looks.seen] == ["g_a", "g_b"]
