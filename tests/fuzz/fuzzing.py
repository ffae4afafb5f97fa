"""Send requests that were drawn to a real broker process, and see that it bears them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import attrs

from clients.admin import Admin
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest
from tests.fuzz.frames import Frame, draw_frames

CONNECTIONS = 16
FRAMES_A_CONNECTION = 20
CHECKED_EACH = 1000
PATIENCE_S = 0.2
"""What has not come by then is parked, or waits for more bytes."""
DEADLINE_S = 30.0
GROWTH_BYTES = 32 * 2**20
"""Memory that a broker may take beyond what it had after the first tenth."""

LAST = 0x7EADBEEF
"""The correlation id of the request behind all others of a connection."""

BAD_LINE = re.compile(r"ERROR|CRITICAL|Traceback")


class BrokerHurt(AssertionError):
    """The broker did not bear what was sent to it."""


@attrs.define(eq=False)
class Fuzzing:
    """Sends frames of one seed to a broker. `log` and `pid` are the broker's.

    `filled_bytes` is the broker's memory after the first tenth, `most_bytes` the most at any look.
    """

    host: str
    port: int
    pid: int
    log: Path
    seed: int
    counts: Counter[str] = attrs.field(factory=Counter)
    filled_bytes: int = 0
    most_bytes: int = 0
    _log_bytes: int = 0

    async def send(self, frames: int) -> None:
        """Send so many frames. Raises BrokerHurt with the seed and the place."""
        self._log_bytes = self.log.stat().st_size
        drawn = draw_frames(self.seed)
        for begin in range(0, frames, CHECKED_EACH):
            await self._send_some(islice(drawn, min(CHECKED_EACH, frames - begin)))
            await self._check(begin + CHECKED_EACH)
            await self._clear()

            # The first tenth fills caches and pools.
            resident = resident_bytes(self.pid)
            if not self.filled_bytes and begin + CHECKED_EACH >= frames / 10:
                self.filled_bytes = resident
            self.most_bytes = max(self.most_bytes, resident)
            if self.filled_bytes and resident > self.filled_bytes + GROWTH_BYTES:
                self._fail(begin, f"memory grew from {self.filled_bytes:,} to {resident:,} bytes")

    async def _send_some(self, frames: Iterator[Frame]) -> None:
        async def send_from_one_client() -> None:
            while some := list(islice(frames, FRAMES_A_CONNECTION)):
                await self._send_on_a_connection(some)

        async with asyncio.TaskGroup() as clients:
            for _ in range(CONNECTIONS):
                clients.create_task(send_from_one_client())

    async def _send_on_a_connection(self, frames: list[Frame]) -> None:
        """Send frames; go on with the rest on a new connection where the broker closes this one."""
        left = list(frames)
        while left:
            reader, writer = await asyncio.open_connection(self.host, self.port)
            try:
                sent = left[
                    : 1 + next((n for n, frame in enumerate(left) if not frame.is_whole), 99)
                ]
                writer.write(b"".join([frame.data for frame in sent]) + _ask_versions(LAST))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        answered = await self._read_answers(reader)
                        self.counts["answered"] += answered
                        # What the broker closed the connection for is not sent again.
                        sent = sent[: answered + 1]
                del left[: len(sent)]
                self.counts["sent"] += len(sent)
            finally:
                writer.transport.abort()

    async def _read_answers(self, reader: asyncio.StreamReader) -> int:
        """Return how many responses came, when the last one has, or the broker closed."""
        answered = 0
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                self.counts["closed"] += 1
                return answered
            if frame[:4] == LAST.to_bytes(4, "big"):
                return answered
            answered += 1

    # ---- the broker

    async def _check(self, sent: int) -> None:
        """See that the broker answers a new client, and has logged no failure of its own."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                writer.write(_ask_versions(1))
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                writer.close()
                read_response(ApiKey.API_VERSIONS, 0, frame)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._fail(sent, f"a new client gets no answer: {error!r}")

        with self.log.open("rb") as log:
            log.seek(self._log_bytes)
            new = log.read()
        self._log_bytes += len(new)
        lines = new.decode(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if BAD_LINE.search(line):
                self._fail(sent, "the broker logs\n" + "\n".join(lines[number : number + 40]))

    async def _clear(self) -> None:
        """Delete what frames have created, so that memory which grows is memory that leaks."""
        async with Admin(f"{self.host}:{self.port}") as admin:
            topics = await admin.list_topics()
            groups = [listing.group_id for listing in await admin.list_groups()]
            await admin.delete_topics(topics)
            await admin.delete_groups(groups)
        self.counts["topics created"] += len(topics)
        self.counts["groups begun"] += len(groups)

    def _fail(self, sent: int, reason: str) -> None:
        raise BrokerHurt(f"seed {self.seed}, within {CHECKED_EACH} frames before {sent}: {reason}")


def resident_bytes(pid: int) -> int:
    """Return the memory of a process; Linux has it in /proc. Raises BrokerHurt if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        raise BrokerHurt(f"the broker's process {pid} is gone") from None
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    if found is None:
        raise BrokerHurt(f"the broker's process {pid} is gone")
    return int(found[1]) * 1024


def _ask_versions(correlation_id: int) -> bytes:
    return encode_request(ApiKey.API_VERSIONS, 0, correlation_id, "fuzz", ApiVersionsRequest())
