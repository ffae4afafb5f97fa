"""An ensemble of three loses its leader, or a machine hangs, and no session expires."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.stage.ensemble import Ensemble, kill
from tests.stage.processes import frozen
from tests.stage.sessions import Events
from tests.stage.waiting import until
from zk.api import SessionState, WatchEvent
from zk.session import KazooSession

SESSION_MS = 9000
"""A third of it must do to find another server, on a machine that may be busy."""
CONNECTED = SessionState.CONNECTED
SESSIONS = 12


@contextlib.asynccontextmanager
async def sessions(hosts: str, states: list[SessionState]) -> AsyncIterator[list[KazooSession]]:
    """Start so many sessions that followers serve some; `states` collects the states of all."""
    opened = [KazooSession(hosts, session_timeout_ms=SESSION_MS) for _ in range(SESSIONS)]
    for session in opened:
        session.add_state_listener(states.append)
    try:
        await asyncio.gather(*(session.start() for session in opened))
        yield opened
    finally:
        await asyncio.gather(*(session.close() for session in opened))


async def wait_until_reconnected(
    opened: list[KazooSession], ids: list[int], states: list[SessionState]
) -> None:
    """Wait until a connection was lost and all are back, as the same sessions."""
    await until(lambda: SessionState.SUSPENDED in states, "a suspended session")
    await until(lambda: all(session.state is CONNECTED for session in opened), "all are connected")
    assert [session.session_id for session in opened] == ids


def test_a_leader_that_is_killed_costs_no_session_no_ephemeral_and_no_watch(
    ensemble: Ensemble,
) -> None:
    async def scenario() -> None:
        states: list[SessionState] = []
        async with sessions(ensemble.hosts, states) as opened:
            ids = [session.session_id for session in opened]
            events = [Events() for _ in opened]
            for number, session in enumerate(opened):
                await session.create(f"/mine-{number}", b"", ephemeral=True)
                await session.get(f"/mine-{number}", watch=events[number])
            await asyncio.to_thread(kill, ensemble.leader())
            await wait_until_reconnected(opened, ids, states)

            for number in range(SESSIONS):
                await opened[number - 1].set(f"/mine-{number}", b"x")
            changed = [await event.next() for event in events]
            assert changed == [WatchEvent("changed", f"/mine-{n}") for n in range(SESSIONS)]
            stats = [await opened[0].exists(f"/mine-{n}") for n in range(SESSIONS)]
            assert [stat and stat.ephemeral_owner for stat in stats] == ids

    asyncio.run(scenario())


def test_with_a_machine_that_hangs_sessions_start_and_those_it_served_move_on(
    ensemble: Ensemble,
) -> None:
    async def scenario() -> None:
        states: list[SessionState] = []
        async with sessions(ensemble.hosts, states) as opened:
            ids = [session.session_id for session in opened]
            hanging = await asyncio.to_thread(ensemble.busiest_follower)
            with frozen(hanging.pid):
                async with sessions(ensemble.hosts, []) as later:
                    assert all(session.state is CONNECTED for session in later)
                await wait_until_reconnected(opened, ids, states)

    asyncio.run(scenario())
