"""The journal of resets: what each has written, and how to take it back.

The journal is the topic `__kgroup_journal`. Where a client may not have it, it is a file. An entry
is written before the first offset is, and written again under its id when it has ended.
"""

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
    async def read(self) -> list[Record]: ...
    async def append(self, records: Sequence[Record]) -> None: ...


@attrs.define(eq=False)
class Journal:
    """The journal in the first of `logs` that can be written; entries of all of them are read."""

    logs: Sequence[JournalLog]
    cluster_id: str | None = None

    @classmethod
    async def of(cls, admin: Admin) -> "Journal":
        """Return the journal of a cluster. Raises KgroupError."""
        cluster_id = (await admin.describe_cluster()).cluster_id
        return cls([JournalTopic(admin), JournalFile(journal_path(cluster_id))], cluster_id)

    async def entries(self) -> dict[int, tuple[JournalEntry, JournalLog]]:
        """Return all entries by id, each with its log. Raises KgroupError, OSError."""
        entries: dict[int, tuple[JournalEntry, JournalLog]] = {}
        for log in self.logs:
            for entry in read_entries(await _read(log)).values():
                entries.setdefault(entry.id, (entry, log))
        return dict(sorted(entries.items()))

    async def find(self, entry_id: int) -> JournalEntry:
        """Return one entry. Raises NoSuchEntry, KgroupError, OSError."""
        entries = await self.entries()
        if entry_id not in entries:
            names = " nor ".join(log.name for log in self.logs)
            raise NoSuchEntry(
                f"journal entry {entry_id} does not exist: neither {names} has it; "
                "`kgroup journal` lists what they have"
            )
        return entries[entry_id][0]

    async def begin(self, entry: JournalEntry) -> tuple[JournalEntry, JournalLog]:
        """Write a new entry; return it with its id, and its log. Raises KgroupError, OSError."""
        log = await self._writable()
        for _ in range(MAX_TRIES):
            try:
                numbered = await _append_new(log, entry)
            except BrokerError as error:
                if error.retriable or log is self.logs[-1]:
                    raise
                # The topic is there, and this client may not use it.
                log = self.logs[-1]
                await log.create()
                continue

            if numbered is not None:
                return numbered, log

        raise JournalUnreadable(f"{log.name}: no free id after {MAX_TRIES} attempts")

    async def replace(self, entry: JournalEntry) -> None:
        """Write an entry again under its id. Raises KgroupError, OSError."""
        for log in self.logs:
            if entry.id in read_entries(await _read(log)):
                await log.append(records_of(entry))
                return

    async def trim(self, before_ms: int) -> None:
        """Delete what was begun before a time, but for the newest entry, which holds the last id.

        Raises KgroupError, OSError.
        """
        for log in self.logs:
            records = await _read(log)
            entries = read_entries(records)
            for entry in entries.values():
                if entry.at_ms < before_ms and entry.id != max(entries):
                    await log.append(tombstones_of(entry, records))

    async def _writable(self) -> JournalLog:
        """Return the first log that is there, or can be created."""
        for log in self.logs[:-1]:
            try:
                if not await log.exists():
                    await log.create()
                return log
            except (BrokerError, UnsupportedApi) as error:
                if error.retriable:
                    raise

        await self.logs[-1].create()
        return self.logs[-1]


async def _append_new(log: JournalLog, entry: JournalEntry) -> JournalEntry | None:
    """Write an entry under the next id. Return it; None if another command has taken the id."""
    records = await log.read()
    # An entry of another version is a reason to change nothing.
    read_entries(records)
    entry = attrs.evolve(entry, id=last_id(records) + 1)
    await log.append(records_of(entry))

    # Of two commands with one id the later one takes another, and gives this one back.
    correction = repairs(await log.read(), entry)
    if correction is None:
        return entry
    while correction:
        await log.append(correction)
        correction = repairs(await log.read(), entry)
    return None


async def _read(log: JournalLog) -> list[Record]:
    """Return the records; none of a log that is not there, or that may not be read."""
    try:
        return await log.read() if await log.exists() else []
    except KgroupError as error:
        if isinstance(error, BrokerError) and not error.retriable:
            return []
        raise
