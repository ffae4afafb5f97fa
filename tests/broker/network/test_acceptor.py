"""When connections are accepted: real sockets, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from broker.network.acceptor import ACCEPTED_PER_TURN, Acceptor
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas, Limits
from tests.stage.clock import run_in_virtual_time

LISTENER = "PLAINTEXT"
UNLIMITED = Limits()


class Listening(socket.socket):
    """A listening socket whose next calls of `accept` fail with `errors`."""

    errors: list[int]
    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


@attrs.define(eq=False)
class Port:
    """An acceptor with the times, in seconds, at which it took connections."""

    listening: Listening
    acceptor: Acceptor = attrs.field(init=False)
    quotas: ConnectionQuotas
    accepted: list[socket.socket] = attrs.field(factory=list)
    taken_at: list[float] = attrs.field(factory=list)
    clients: list[socket.socket] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.acceptor = Acceptor(LISTENER, self.listening, self.quotas, self._take)
        self.acceptor.start()

    def connect(self, number: int) -> None:
        for _ in range(number):
            self.clients.append(socket.create_connection(self.listening.getsockname()))

    def release(self, number: int) -> None:
        """Close so many connections."""
        for _ in range(number):
            self.quotas.remove(LISTENER, "127.0.0.1")
            self.acceptor.look_for_place()

    def _take(self, accepted: socket.socket, address: str) -> None:
        self.accepted.append(accepted)
        assert self.quotas.admit(LISTENER, address, 0) is None
        self.taken_at.append(round(asyncio.get_running_loop().time(), 3))


@contextlib.contextmanager
def port(limits: Limits = UNLIMITED, *errors: int, windows: int = 11) -> Iterator[Port]:
    listening = Listening()
    listening.errors = list(errors)
    listening.bind(("127.0.0.1", 0))
    listening.listen(512)
    listening.setblocking(False)
    quotas = ConnectionQuotas(ConnectionLimits(limits, {LISTENER: limits}), windows=windows)
    made = Port(listening, quotas)
    try:
        yield made
    finally:
        made.acceptor.close()
        for sock in (listening, *made.accepted, *made.clients):
            sock.close()


def test_all_who_wait_are_accepted_at_once_some_in_each_turn() -> None:
    async def scene() -> tuple[list[int], list[float]]:
        numbers = []
        with port() as made:
            made.connect(2 * ACCEPTED_PER_TURN + 5)
            for _ in range(5):
                await asyncio.sleep(0)
                numbers.append(len(made.taken_at))
            return sorted(set(numbers) - {0}), made.taken_at

    numbers, taken_at = run_in_virtual_time(scene())
    assert numbers == [ACCEPTED_PER_TURN, 2 * ACCEPTED_PER_TURN, 2 * ACCEPTED_PER_TURN + 5]
    assert set(taken_at) == {0.0}


def test_without_a_place_nobody_is_accepted_until_there_is_one() -> None:
    async def scene() -> tuple[list[float], float]:
        with port(Limits(2)) as made:
            made.connect(4)
            await asyncio.sleep(10)
            made.release(1)
            await asyncio.sleep(5)
            made.release(1)
            await asyncio.sleep(3)
            return made.taken_at, made.acceptor.blocked_s

    taken_at, blocked_s = run_in_virtual_time(scene())
    assert taken_at == [0.0, 0.0, 10.0, 15.0]
    # Since the fourth was accepted nobody waits, though there is no place.
    assert blocked_s == 15.0


def test_who_waits_is_not_polled() -> None:
    async def scene() -> int:
        with port(Limits(1)) as made:
            made.connect(2)
            await asyncio.sleep(0.001)
            before = made.listening.calls
            for _ in range(1000):
                await asyncio.sleep(0)
            return made.listening.calls - before

    assert run_in_virtual_time(scene()) == 0


def test_connections_beyond_the_rate_come_one_after_the_other() -> None:
    """Ten seconds' worth come at once."""

    async def scene() -> tuple[list[float], float]:
        with port(Limits(creation_rate=10)) as made:
            made.connect(105)
            await asyncio.sleep(60)
            return made.taken_at, made.acceptor.blocked_s

    taken_at, blocked_s = run_in_virtual_time(scene())
    assert taken_at[:100] == [0.0] * 100
    assert taken_at[100:] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert blocked_s == pytest.approx(taken_at[-1], abs=0.002)


def test_in_the_long_run_the_rate_holds() -> None:
    async def scene() -> list[float]:
        with port(Limits(creation_rate=2)) as made:
            made.connect(100)
            await asyncio.sleep(120)
            return made.taken_at

    taken_at = run_in_virtual_time(scene())
    late = [at for at in taken_at if 15 <= at < 35]
    assert len(late) == pytest.approx(20 * 2, abs=3)


def test_who_waited_for_the_rate_still_needs_a_place() -> None:
    async def scene() -> list[float]:
        with port(Limits(2, creation_rate=1), windows=1) as made:
            made.connect(3)
            await asyncio.sleep(10)
            made.release(2)
            await asyncio.sleep(10)
            return made.taken_at

    # Each is counted once, the third long before there is a place.
    assert run_in_virtual_time(scene()) == [0.0, 1.0, 10.0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF])
def test_an_error_of_the_process_is_followed_by_a_rest(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> tuple[list[float], int]:
        with port(UNLIMITED, number, number) as made:
            made.connect(1)
            await asyncio.sleep(1.5)
            calls = made.listening.calls
            await asyncio.sleep(10)
            return made.taken_at, calls

    caplog.set_level(logging.ERROR, "broker.network.acceptor")
    taken_at, calls = run_in_virtual_time(scene())
    assert (taken_at, calls) == ([2.0], 2)
    reason = f"[Errno {number}] {os.strerror(number)}"
    assert caplog.messages == [f"PLAINTEXT: no connection can be accepted for 1.0 s: {reason}"] * 2


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EPERM])
def test_a_connection_that_ended_while_it_waited_does_not_stop_the_others(number: int) -> None:
    async def scene() -> tuple[list[float], int]:
        with port(UNLIMITED, *[number] * 40) as made:
            made.connect(1)
            await asyncio.sleep(1)
            return made.taken_at, made.listening.calls

    taken_at, calls = run_in_virtual_time(scene())
    assert taken_at == [0.0]
    assert calls <= 42


def test_a_connection_that_ended_while_it_waited_does_not_count_in_the_rate() -> None:
    async def scene() -> list[float]:
        with port(Limits(creation_rate=2), *[errno.ECONNABORTED] * 100, windows=1) as made:
            made.connect(2)
            await asyncio.sleep(60)
            return made.taken_at

    assert run_in_virtual_time(scene()) == [0.0, 0.0]


def test_a_closed_acceptor_takes_nobody_however_it_waited() -> None:
    async def scene() -> list[float]:
        with port(Limits(1, creation_rate=1), windows=1) as made:
            made.connect(3)
            await asyncio.sleep(0.5)
            made.acceptor.close()
            made.release(1)
            await asyncio.sleep(60)
            return made.taken_at

    assert run_in_virtual_time(scene()) == [0.0]
