"""The journal of resets: what each has written, and how to take it back.

The journal is the topic `__kgroup_journal`. Where a client may not have it, it is a file. An entry
is written before the first offset is, and written again under its id when it has ended.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import attrs

from clients.admin import Admin
from clients.errors import BrokerError, ClientError, KgroupError, UnsupportedApi
from clients.resets.journal_entry import (
    JournalEntry,
    JournalUnreadable,
    Record,
    last_id,
    read_entries,
    records_of,
    repairs,
    tombstones_of,
)
from clients.resets.journal_file import JournalFile, journal_path
from clients.resets.journal_topic import JournalTopic
from protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

REFUSALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""Errors of a client that may not have the topic: its journal is a file."""
IDS_OF_TOPIC = 1_000_000
"""The largest id in a topic. Those of a file beside one are larger."""
KEEP_MS = 90 * 86_400_000
"""Age of the entries that the next reset deletes."""
MAX_TRIES = 20
"""Commands that may begin at the same time and take the same id, each before us."""


class NoSuchEntry(ClientError):
    """The journal has no entry with this id."""


class JournalLog(Protocol):
    """A log of the journal's records: a topic or a file."""

    @property
    def name(self) -> str: ...
    async def exists(self) -> bool: ...
    async def create(self) -> None: ...
    async def read(self, start: int = 0) -> tuple[list[Record], int]: ...
    async def append(self, records: Sequence[Record]) -> None: ...


@attrs.define(eq=False)
class ReadLog:
    """What a command has read of a log. Only what came since is read and decoded again."""

    log: JournalLog
    entries: dict[int, JournalEntry] = attrs.field(factory=dict)
    refusal: BrokerError | None = None
    """Why it was not read at the last attempt."""
    _records: dict[int, list[Record]] = attrs.field(factory=lambda: defaultdict(list))
    """The records of each id, the oldest first."""
    _next: int = 0

    @property
    def last_id(self) -> int:
        """Return the largest id, 0 without one; deleted entries count."""
        return max(self._records, default=0)

    def records(self, entry_id: int) -> list[Record]:
        """Return the records of one id."""
        return self._records.get(entry_id, [])

    async def read_on(self) -> None:
        """Read what came since. Raises KgroupError, OSError; JournalUnreadable by an entry."""
        # All of it for each group would be many entries many times (fault scale-C2, was: 0).
        start = self._next
        records, self._next = await self.log.read(start)
        if start == 0:
            self._records.clear()
            self.entries.clear()

        changed = set()
        for key, value in records:
            entry_id = last_id([(key, value)])
            self._records[entry_id].append((key, value))
            changed.add(entry_id)
        try:
            for entry_id in sorted(changed):
                self.entries.pop(entry_id, None)
                self.entries |= read_entries(self._records[entry_id])
        except JournalUnreadable:
            # The next call says so too.
            self._next = 0
            raise


@attrs.define(eq=False)
class Journal:
    """The journal in the first of `logs` that can be written; entries of all of them are read."""

    logs: Sequence[JournalLog]
    cluster_id: str | None = None
    ids_elsewhere: int = 0
    """The largest id that a log may have which is not among `logs`."""
    _read_logs: list[ReadLog] = attrs.field(init=False)
    _is_trimmed: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._read_logs = [ReadLog(log) for log in self.logs]

    @classmethod
    async def of(cls, admin: Admin, *, keeps_clients: bool = True) -> "Journal":
        """Return the journal of a cluster. Raises KgroupError.

        Its clients are kept until the admin client is closed: not where that serves for long.
        """
        cluster_id = (await admin.describe_cluster()).cluster_id
        topic = JournalTopic(admin, keeps_clients=keeps_clients)
        return cls([topic, JournalFile(journal_path(cluster_id))], cluster_id)

    @classmethod
    def beside_brokers(cls, cluster_id: str | None) -> "Journal":
        """Return the file alone, for a command that asks no broker."""
        return cls([JournalFile(journal_path(cluster_id))], cluster_id, IDS_OF_TOPIC)

    async def entries(self) -> dict[int, tuple[JournalEntry, JournalLog]]:
        """Return all entries by id, each with its log. Raises KgroupError, OSError."""
        entries: dict[int, tuple[JournalEntry, JournalLog]] = {}
        for read_log in self._read_logs:
            await _read(read_log)
            for entry in read_log.entries.values():
                entries.setdefault(entry.id, (entry, read_log.log))
        return dict(sorted(entries.items()))

    @property
    def refusals(self) -> dict[str, BrokerError]:
        """The logs that could not be read, and are left out of the entries."""
        return {own.log.name: own.refusal for own in self._read_logs if own.refusal is not None}

    async def find(self, entry_id: int) -> JournalEntry:
        """Return one entry. Raises NoSuchEntry, KgroupError, OSError."""
        entries = await self.entries()
        if entry_id not in entries:
            names = " nor ".join(log.name for log in self.logs)
            unread = ", as far as you may read them" if self.refusals else ""
            raise NoSuchEntry(
                f"journal entry {entry_id} does not exist: neither {names} has it{unread}; "
                "`kgroup journal` lists what they have"
            )
        return entries[entry_id][0]

    async def begin(self, entry: JournalEntry) -> tuple[JournalEntry, JournalLog]:
        """Write a new entry; return it with its id, and its log. Raises KgroupError, OSError."""
        read_log = await self._writable()
        for _ in range(MAX_TRIES):
            try:
                numbered = await _append_new(read_log, entry, await self._last_id_beside(read_log))
            except BrokerError as error:
                if error.retriable or read_log is self._read_logs[-1]:
                    raise
                # The topic is there, and this client may not use it.
                read_log = self._read_logs[-1]
                await read_log.log.create()
                continue

            if numbered is not None:
                return numbered, read_log.log

        raise JournalUnreadable(f"{read_log.log.name}: no free id after {MAX_TRIES} attempts")

    async def _last_id_beside(self, read_log: ReadLog) -> int:
        """Return the id above which a log has its ids: one names one entry, wherever it is."""
        if len(self._read_logs) == 1:
            return self.ids_elsewhere
        # Others write to the topic, and know nothing of this file.
        if read_log is self._read_logs[-1]:
            return IDS_OF_TOPIC

        file = self._read_logs[-1]
        await _read(file)
        # Files have begun at 1, too.
        return max((entry_id for entry_id in file.entries if entry_id <= IDS_OF_TOPIC), default=0)

    async def replace(self, entry: JournalEntry) -> None:
        """Write an entry again under its id. Raises KgroupError, OSError."""
        for read_log in self._read_logs:
            if entry.id not in read_log.entries:
                await _read(read_log)
            if entry.id in read_log.entries:
                await read_log.log.append(records_of(entry))
                return

    async def trim(self, before_ms: int) -> None:
        """Delete what was begun before a time, but for the newest entry, which holds the last id.

        Once for a command. Raises KgroupError, OSError.
        """
        if self._is_trimmed:
            return
        self._is_trimmed = True

        for read_log in self._read_logs:
            await _read(read_log)
            entries = list(read_log.entries.values())
            last = max(read_log.entries, default=0)
            for entry in entries:
                if entry.at_ms < before_ms and entry.id != last:
                    records = tombstones_of(entry, read_log.records(entry.id))
                    await read_log.log.append(records)

    async def _writable(self) -> ReadLog:
        """Return the first log that is there, or can be created."""
        for read_log in self._read_logs[:-1]:
            try:
                if not await read_log.log.exists():
                    await read_log.log.create()
                return read_log
            except (BrokerError, UnsupportedApi) as error:
                if error.retriable:
                    raise
                if not isinstance(error, BrokerError) or error.code not in REFUSALS:
                    logger.warning(
                        "the journal is kept in %s for now: %s cannot be used: %s",
                        self.logs[-1].name,
                        read_log.log.name,
                        error,
                    )

        await self.logs[-1].create()
        return self._read_logs[-1]


async def _append_new(read_log: ReadLog, entry: JournalEntry, last: int) -> JournalEntry | None:
    """Write an entry under the next id. Return it; None if another command has taken the id.

    `last` is the largest id elsewhere.
    """
    # An entry of another version is a reason to change nothing.
    await read_log.read_on()
    entry = attrs.evolve(entry, id=max(read_log.last_id, last) + 1)
    await read_log.log.append(records_of(entry))

    # Of two commands with one id the later one takes another, and gives this one back.
    await read_log.read_on()
    correction = repairs(read_log.records(entry.id), entry)
    if correction is None:
        return entry
    while correction:
        await read_log.log.append(correction)
        await read_log.read_on()
        correction = repairs(read_log.records(entry.id), entry)
    return None


async def _read(read_log: ReadLog) -> None:
    """Read on in a log, unless it is not there, or may not be read."""
    read_log.refusal = None
    try:
        if await read_log.log.exists():
            await read_log.read_on()
    except KgroupError as error:
        if isinstance(error, BrokerError) and not error.retriable:
            read_log.refusal = error
            return
        raise
