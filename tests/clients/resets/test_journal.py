"""The journal over its file: ids, what a crash cuts off, age, and commands at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from clients.admin import Admin
from clients.errors import BrokerError
from clients.resets.journal import Journal, NoSuchEntry
from clients.resets.journal_entry import JournalUnreadable, Record, Status
from clients.resets.journal_file import JournalFile, journal_path
from clients.resets.journal_topic import JournalTopic
from protocol.errors import ErrorCode
from tests.clients.resets.test_journal_entry import entry
from tests.stage.cluster import DevCluster


@pytest.fixture
def file(tmp_path: Path) -> JournalFile:
    """A journal's file that is not there yet."""
    return JournalFile(tmp_path / "kgroup" / "journal-c.jsonl")


@attrs.frozen
class SharedLog:
    """A log in memory, at which others get their turn with every call, as at a broker."""

    records: list[Record] = attrs.field(factory=list)
    name: str = "shared"

    async def exists(self) -> bool:
        return True

    async def create(self) -> None:
        """Nothing is to be done: it is there."""

    async def read(self, start: int = 0) -> tuple[list[Record], int]:
        await asyncio.sleep(0)
        return self.records[start:], len(self.records)

    async def append(self, records: Sequence[Record]) -> None:
        for record in records:
            await asyncio.sleep(0)
            self.records.append(record)


def test_ids_go_up_from_one_and_an_entry_is_replaced_under_its_id(file: JournalFile) -> None:
    async def run() -> None:
        journal = Journal([file])
        first, log = await journal.begin(entry(0, token="a"))
        second, _ = await journal.begin(entry(0, token="b"))
        assert (first.id, second.id, log.name) == (1, 2, str(file.path))

        await journal.replace(attrs.evolve(first, status=Status.DONE))
        statuses = {
            number: found.status for number, (found, _) in (await journal.entries()).items()
        }
        assert statuses == {1: Status.DONE, 2: Status.BEGUN}

    asyncio.run(run())


def test_a_line_that_a_crash_has_cut_off_is_no_entry(file: JournalFile) -> None:
    async def run() -> None:
        journal = Journal([file])
        await journal.begin(entry(0, token="a"))
        with file.path.open("a") as out:
            out.write('{"key": "2", "value": {"version": 1, "id"')

        begun, _ = await journal.begin(entry(0, token="b"))
        assert begun.id == 2
        assert list(await journal.entries()) == [1, 2]

    asyncio.run(run())


@pytest.mark.parametrize("commands", [2, 3, 7])
def test_commands_that_begin_at_the_same_time_get_ids_of_their_own(commands: int) -> None:
    async def begin_and_end(log: SharedLog, token: str) -> tuple[int, str]:
        journal = Journal([log])
        begun, _ = await journal.begin(entry(0, token=token))
        await journal.replace(attrs.evolve(begun, status=Status.DONE))
        return begun.id, token

    async def run() -> None:
        log = SharedLog()
        begun = await asyncio.gather(
            *(begin_and_end(log, f"t{number}") for number in range(commands))
        )
        assert len(dict(begun)) == commands

        # All have ended, and compaction leaves each under its own id.
        log.records[:] = dict(log.records).items()
        entries = await Journal([log]).entries()
        assert {number: found.token for number, (found, _) in entries.items()} == dict(begun)
        assert {found.status for found, _ in entries.values()} == {Status.DONE}

    asyncio.run(run())


@attrs.frozen
class ForbiddenLog(SharedLog):
    """A topic that the client may read, and neither create nor write."""

    is_there: bool = True

    async def exists(self) -> bool:
        return self.is_there

    async def create(self) -> None:
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, self.name)

    async def append(self, records: Sequence[Record]) -> None:
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, self.name)


@pytest.mark.parametrize("is_there", [True, False])
def test_where_a_topic_is_forbidden_the_journal_is_a_file(
    file: JournalFile, is_there: bool
) -> None:
    async def run() -> None:
        journal = Journal([ForbiddenLog(is_there=is_there), file])
        begun, log = await journal.begin(entry(0))
        await journal.replace(attrs.evolve(begun, status=Status.DONE))
        assert log.name == str(file.path)
        assert (await journal.find(begun.id)).status is Status.DONE

    asyncio.run(run())


def test_an_entry_of_a_time_without_the_topic_keeps_its_id_for_itself(
    file: JournalFile, caplog: pytest.LogCaptureFixture
) -> None:
    class TooFewBrokers(SharedLog):
        async def exists(self) -> bool:
            return False

        async def create(self) -> None:
            raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, self.name)

    async def run() -> None:
        first, _ = await Journal([TooFewBrokers(), file]).begin(entry(0, token="a"))
        journal = Journal([SharedLog(), file])
        second, log = await journal.begin(entry(0, token="b"))
        assert (first.id, second.id, log.name) == (1_000_001, 1, "shared")
        assert [found.token for found, _ in (await journal.entries()).values()] == ["b", "a"]

        # Another machine has written to the topic since.
        third, _ = await Journal([TooFewBrokers(), file]).begin(entry(0, token="c"))
        assert third.id == 1_000_002

    asyncio.run(run())
    said, _ = caplog.messages
    assert f"the journal is kept in {file.path} for now" in said


def test_a_topic_that_cannot_be_reached_is_no_reason_to_begin_in_a_file(file: JournalFile) -> None:
    class UnreachableLog(SharedLog):
        async def append(self, records: Sequence[Record]) -> None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, self.name)

    with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
        asyncio.run(Journal([UnreachableLog(), file]).begin(entry(0)))
    assert not file.path.exists()


def test_old_entries_are_deleted_but_for_the_one_that_holds_the_last_id(file: JournalFile) -> None:
    async def run() -> None:
        journal = Journal([file])
        for age, token in [(1000, "a"), (2000, "b"), (1500, "c")]:
            await journal.begin(entry(0, token=token, at_ms=age))

        await journal.trim(1800)
        assert list(await journal.entries()) == [2, 3]
        begun, _ = await journal.begin(entry(0, token="d"))
        assert begun.id == 4

    asyncio.run(run())


def test_an_id_that_is_not_there_is_named_with_where_it_was_looked_for(file: JournalFile) -> None:
    with pytest.raises(NoSuchEntry, match=f"entry 7 does not exist.*{file.path}"):
        asyncio.run(Journal([file]).find(7))


def test_the_file_is_below_the_users_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert journal_path("a/b_c-1") == tmp_path / "kgroup" / "journal-a_b_c-1.jsonl"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert journal_path(None) == Path.home() / ".local/share/kgroup/journal-unknown-cluster.jsonl"


# --- many changes of one command


@attrs.frozen
class CountingLog(SharedLog):
    """A log that notes how many records each read has handed out."""

    handed_out: list[int] = attrs.field(factory=list)

    async def read(self, start: int = 0) -> tuple[list[Record], int]:
        records, end = await super().read(start)
        self.handed_out.append(len(records))
        return records, end


def records_read(changes: int, entries_before: int) -> int:
    """Return how many records a command with so many changes reads, behind so many entries."""

    async def run() -> int:
        log = CountingLog()
        for number in range(entries_before):
            begun, _ = await Journal([log]).begin(entry(0, token=f"old{number}"))
            assert begun.id == number + 1
        log.handed_out.clear()

        journal = Journal([log])
        for number in range(changes):
            begun, _ = await journal.begin(entry(0, token=f"t{number}"))
            await journal.trim(before_ms=0)
            await journal.replace(attrs.evolve(begun, status=Status.DONE))
        assert (await journal.entries()).keys() == set(range(1, entries_before + changes + 1))
        return sum(log.handed_out)

    return asyncio.run(run())


@pytest.mark.fault("scale-C2")
def test_a_command_reads_the_journal_once_however_many_groups_it_changes() -> None:
    # Each change is read back when it is begun, and when it has ended.
    assert records_read(changes=10, entries_before=50) == 50 + 2 * 10
    assert records_read(changes=100, entries_before=50) == 50 + 2 * 100


def test_a_journal_that_cannot_be_read_stays_so_for_the_next_change() -> None:
    async def run() -> None:
        log = SharedLog([("1", '{"version": 99}')])
        journal = Journal([log])
        for _ in range(2):
            with pytest.raises(JournalUnreadable):
                await journal.begin(entry(0))
        assert len(log.records) == 1

    asyncio.run(run())


class CountingAdmin(Admin):
    """An admin client that counts its lists of all topics."""

    lists = 0

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        self.lists += 1
        return await super().list_topics(internal=internal)


@pytest.mark.fault("scale-C2")
async def test_a_command_lists_topics_once_and_opens_its_clients_once(
    dev_cluster: DevCluster,
) -> None:
    async with CountingAdmin(dev_cluster.address("bootstrap")) as admin:
        topic = JournalTopic(admin, f"journal-{uuid4().hex[:8]}")
        await topic.create()
        # Another broker may not know it yet.
        while not await topic.exists():
            pass
        admin.lists = 0

        place = 0
        for number in range(5):
            assert await topic.exists()
            await topic.append([("1", str(number))])
            records, place = await topic.read(place)
            assert records == [("1", str(number))]
        assert admin.lists == 0
