"""Send what was drawn to a real broker process, and see that it bears it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import attrs

from clients.admin import Admin, NewTopic
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256
from protocol.sasl.scram import NONCE_BITS, SHA_256, ScramClient, nonce_of
from tests.fuzz.conversations import Conversation, Way, draw_conversations
from tests.fuzz.frames import Frame, bend, draw_bent
from tests.fuzz.login_frames import (
    FAR_AWAY_S,
    LONG_AGO_S,
    PASSWORD,
    USER,
    authenticate,
    bearer_token,
    handshake,
    plain_token,
)
from tests.fuzz.target import HOST, Target
from tests.fuzz.tls_bytes import TlsBytes
from tests.stage.waiting import until

CONNECTIONS = 16
CHECKED_EACH = 1000
PATIENCE_S = 0.2
"""What has not come by then is parked, or waits for more bytes."""
DEADLINE_S = 30.0
GROWTH_BYTES = 32 * 2**20
"""Memory that a broker may take beyond what it had after the first tenth. Much of that is free:
malloc keeps as much (KEPT_BYTES of `broker.process.freed_memory`), and its holes fill slowly. After
200,000 frames malloc_trim gave back all that had come since the first 20,000."""

TOPICS = ("fuzz-a", "fuzz-b")
"""Topics that exist in the beginning of each thousand frames."""

LAST = 0x7EADBEEF
"""The correlation id of the request behind all others of a connection."""

BAD_LINE = re.compile(r"ERROR|CRITICAL|Traceback")

_END_S = {Way.SESSION_ENDS: FAR_AWAY_S, Way.SESSION_OVER: LONG_AGO_S}


class BrokerHurt(AssertionError):
    """The broker did not bear what was sent to it."""


@attrs.frozen
class Line:
    """An open connection to the broker."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def receive(self) -> bytes:
        """Return the next frame. Raises IncompleteReadError, ConnectionError."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)


@attrs.define(eq=False)
class Fuzzing:
    """Sends what is drawn from one seed to a broker, and reports after each twentieth.

    `filled_bytes` is the broker's memory after the first tenth, `most_bytes` the most at any look.
    """

    target: Target
    seed: int
    report: Callable[[str], None] = lambda line: None
    counts: Counter[str] = attrs.field(factory=Counter)
    ways: Counter[Way] = attrs.field(factory=Counter)
    """Frames that were sent, by the way of their connection."""
    filled_bytes: int = 0
    most_bytes: int = 0
    _log_bytes: int = 0
    _context: ssl.SSLContext = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._context = ssl.create_default_context(cafile=self.target.trusted)

    async def send(self, frames: int) -> None:
        """Send so many frames, or a few more. Raises BrokerHurt with the seed and the place."""
        await self.target.create_user()
        await self._clear()
        self._log_bytes = self.target.log.stat().st_size
        drawn = draw_conversations(self.seed)
        while (begin := self.counts["sent"]) < frames:
            await self._send_some(drawn, min(begin + CHECKED_EACH, frames))
            await self._check()
            await self._clear()

            # The first tenth fills caches and pools.
            resident = resident_bytes(self.target.pid)
            if not self.filled_bytes and self.counts["sent"] >= frames / 10:
                self.filled_bytes = resident
            self.most_bytes = max(self.most_bytes, resident)
            if 20 * self.counts["sent"] // frames > 20 * begin // frames:
                self.report(f"{self.counts['sent']:,} frames are sent, memory {resident:,}")
            if self.filled_bytes and resident > self.filled_bytes + GROWTH_BYTES:
                self._fail(f"memory grew from {self.filled_bytes:,} to {resident:,} bytes")

    async def _send_some(self, drawn: Iterator[Conversation], until: int) -> None:
        async def send_from_one_client() -> None:
            while self.counts["sent"] < until:
                conversation = next(drawn)
                try:
                    await self._converse(conversation)
                except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    self._fail(f"{conversation.way.name} is closed to sound clients: {error!r}")

        try:
            async with asyncio.TaskGroup() as clients:
                for _ in range(CONNECTIONS):
                    clients.create_task(send_from_one_client())
        except* BrokerHurt as hurt:
            raise hurt.exceptions[0] from None

    # ---- conversations

    async def _converse(self, conversation: Conversation) -> None:
        """Send the frames; go on with the rest on a new connection where the broker closes one."""
        way, left = conversation.way, list(conversation.frames)
        rng = random.Random(conversation.seed)
        if way in (Way.BROKEN_RECORDS, Way.BROKEN_HANDSHAKE):
            await self._send_broken(way, left, rng)
            self._count(way, len(left))
            return

        while left:
            async with self._enter(way, rng) as (line, first):
                sent = await self._send_frames(line, [*first, *left])
            # A broker that has closed before the first frame has closed for it.
            taken = max(sent - len(first), 1)
            self._count(way, taken)
            del left[:taken]

    def _count(self, way: Way, frames: int) -> None:
        self.counts["sent"] += frames
        self.ways[way] += frames

    @contextlib.asynccontextmanager
    async def _connect(
        self, port: int, context: ssl.SSLContext | None = None
    ) -> AsyncIterator[Line]:
        name = None if context is None else "localhost"
        reader, writer = await asyncio.open_connection(
            HOST, port, ssl=context, server_hostname=name
        )
        try:
            yield Line(reader, writer)
        finally:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def _enter(
        self, way: Way, rng: random.Random
    ) -> AsyncIterator[tuple[Line, Sequence[Frame]]]:
        """Go the way of a sound client; yield the connection, and what comes before all others."""
        if way is Way.PLAINTEXT:
            async with self._connect(self.target.plaintext) as line:
                yield line, ()
        elif way is Way.TLS:
            async with self._connect(self.target.tls, self._context) as line:
                yield line, ()
        else:
            async with (
                self._connect(self.target.login) as line,
                asyncio.timeout(DEADLINE_S) as soon,
            ):
                first: Sequence[Frame] = ()
                if way is Way.LOGGED_IN:
                    await self._log_in(line, PLAIN, plain_token())
                elif way in _END_S:
                    claims = {"sub": USER, "exp": _END_S[way]}
                    await self._log_in(line, OAUTHBEARER, bearer_token(claims))
                elif way is Way.IN_LOGIN:
                    first = await self._begin_scram(line, rng)
                soon.reschedule(None)
                yield line, first

    async def _log_in(self, line: Line, mechanism: str, token: bytes) -> bytes:
        """Send the first token of a login, and return the broker's. Raises BrokerHurt."""
        line.writer.write(handshake(mechanism) + authenticate(token))
        _, agreed = read_response(ApiKey.SASL_HANDSHAKE, 1, await line.receive())
        _, response = read_response(ApiKey.SASL_AUTHENTICATE, 1, await line.receive())
        if agreed.error_code or response.error_code:
            self._fail(f"a sound login by {mechanism} is refused: {response.error_message}")
        return bytes(response.auth_bytes)

    async def _begin_scram(self, line: Line, rng: random.Random) -> Sequence[Frame]:
        """Log in by halves; return the other half as it is, bent, or nothing of it."""
        client = ScramClient(SHA_256, USER, PASSWORD, nonce_of(rng.getrandbits(NONCE_BITS)))
        proof = client.receive(await self._log_in(line, SCRAM_SHA_256, client.begin()))
        assert proof is not None
        return rng.choice(([Frame(authenticate(proof))], [draw_bent(rng, authenticate(proof))], []))

    async def _send_frames(self, line: Line, frames: Sequence[Frame]) -> int:
        """Send frames up to the first that is not whole; return how many the broker has taken."""
        sent = frames[: 1 + next((n for n, frame in enumerate(frames) if not frame.is_whole), 99)]
        line.writer.write(b"".join([frame.data for frame in sent]) + _ask_versions(LAST))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                answered = await self._read_answers(line)
                self.counts["answered"] += answered
                # What the broker closed the connection for is not sent again.
                return min(answered + 1, len(sent))
        return len(sent)

    async def _read_answers(self, line: Line) -> int:
        """Return how many responses came, when the last one has, or the broker closed."""
        answered = 0
        while True:
            try:
                frame = await line.receive()
            except (asyncio.IncompleteReadError, ConnectionError):
                self.counts["closed"] += 1
                return answered
            if frame[:4] == LAST.to_bytes(4, "big"):
                return answered
            answered += 1

    async def _send_broken(self, way: Way, frames: Sequence[Frame], rng: random.Random) -> None:
        """Send records of TLS that are bent, and read until the broker closes."""
        client = TlsBytes(self._context)
        plain = b"".join([frame.data for frame in frames])
        async with self._connect(self.target.tls) as line:
            if way is Way.BROKEN_HANDSHAKE:
                hello = client.hello()
                data = rng.choice((plain, hello + plain, bytes(bend(rng, bytearray(hello)))))
            else:
                async with asyncio.timeout(DEADLINE_S):
                    await client.shake_hands(line.reader, line.writer)
                records = bytearray(client.encrypt(plain))
                data = rng.choice((plain, bytes(bend(rng, records)), bytes(records) + plain))

            line.writer.write(data)
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(PATIENCE_S):
                    await line.reader.read(-1)
                    self.counts["closed"] += 1

    # ---- the broker

    async def _check(self) -> None:
        """See that the broker answers new clients, and has logged no failure of its own."""
        target = self.target
        try:
            async with asyncio.timeout(DEADLINE_S):
                async with self._connect(target.plaintext) as line:
                    await self._ask(line)
                async with self._connect(target.tls, self._context) as line:
                    await self._ask(line)
                async with self._connect(target.login) as line:
                    await self._log_in(line, PLAIN, plain_token())
                    await self._ask(line)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._fail(f"a new client gets no answer: {error!r}")

        with target.log.open("rb") as log:
            log.seek(self._log_bytes)
            new = log.read()
        self._log_bytes += len(new)
        lines = new.decode(errors="replace").splitlines()
        for number, line_ in enumerate(lines):
            if BAD_LINE.search(line_):
                self._fail("the broker logs\n" + "\n".join(lines[number : number + 40]))

    async def _ask(self, line: Line) -> None:
        line.writer.write(_ask_versions(1))
        read_response(ApiKey.API_VERSIONS, 0, await line.receive())

    async def _clear(self) -> None:
        """Delete what frames have created, so that memory which grows is memory that leaks.

        Then create the topics that the next ones use.
        """
        async with Admin(self.target.bootstrap) as admin:
            topics = await admin.list_topics()
            groups = [listing.group_id for listing in await admin.list_groups()]
            await admin.delete_topics(topics)
            await admin.delete_groups(groups)
            self.counts["topics created"] += len(topics)
            self.counts["groups begun"] += len(groups)

            # Requests are to meet topics that exist, and a sound client can create them.
            async def create_topics() -> bool:
                # Those that are still being deleted exist for a while.
                await admin.create_topics([NewTopic(name, 2, 1) for name in TOPICS])
                return {*TOPICS} <= {*await admin.list_topics()}

            try:
                await until(create_topics, "topics are created")
            except AssertionError as error:
                self._fail(str(error))

    def _fail(self, reason: str) -> NoReturn:
        sent = self.counts["sent"]
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
