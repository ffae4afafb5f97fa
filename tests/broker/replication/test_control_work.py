"""Control requests are obeyed in slices and in order; their logs are created beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import attrs
import pytest

from broker.handlers import leader_and_isr as leader_and_isr_handler
from broker.handlers import stop_replica as stop_replica_handler
from broker.replication.control_gate import ControlGate
from broker.replication.control_work import PARTITIONS_PER_TURN, ControlWork
from broker.replication.partition import append_as_fetched
from core_log.directory_name import Kind, parse
from core_log.first_use import FirstUse
from core_log.log import Log
from core_log.memory_directory import MemoryDirectory
from core_log.topic_identity_file import read_identity
from kgroup.testing.threads import as_in_thread
from protocol.errors import ApiError, ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestTopic,
    StopReplicaResponse,
)
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import (
    NOW_MS,
    Replicas,
    batch,
    context,
    leader_and_isr,
    update_metadata,
)

T0 = TopicPartition("t", 0)
SLICES = 3
MANY = (SLICES - 1) * PARTITIONS_PER_TURN + 1


@attrs.define(eq=False)
class HeldExecutor(Executor):
    """An executor that does one piece of work after the other, each when the test says so."""

    asked: list[tuple[Future[Any], Callable[[], Any]]] = attrs.field(factory=list)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append((future, lambda: fn(*args, **kwargs)))
        return future

    async def do_next(self) -> None:
        """Do the oldest piece of work, and let the loop take its result."""
        future, work = self.asked.pop(0)
        future.set_result(as_in_thread(work))
        await turns()


@attrs.define(eq=False)
class KnownConfigs:
    """Topic settings that are all known."""

    def when_known(self, topics: set[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        return answer()


@attrs.define(eq=False)
class Broker:
    """Broker 0, with slow threads for its disk."""

    replicas: Replicas = attrs.field(factory=Replicas)
    executor: HeldExecutor = attrs.field(factory=HeldExecutor)
    gate: ControlGate = attrs.field(factory=ControlGate)
    control: ControlWork = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.control = self.replicas.control(self.executor)

    def begin(self, request: Any) -> asyncio.Task[Any]:
        """Receive a request; the task ends with its response."""
        answer: Any
        if isinstance(request, LeaderAndIsrRequest):
            configs: Any = KnownConfigs()
            manager = self.replicas.manager
            answer = leader_and_isr_handler.handle(
                self.gate, manager, configs, self.control, request, context()
            )
        else:
            answer = stop_replica_handler.handle(self.gate, self.control, request, context())
        return asyncio.ensure_future(self.replicas.ended(answer))

    async def obeyed(self, request: Any) -> Any:
        """Receive a request, and do all the work that it causes."""
        response = self.begin(request)
        while not response.done() or self.executor.asked:
            await turns()
            if self.executor.asked:
                await self.executor.do_next()
        return await response

    @property
    def led(self) -> int:
        return sum(partition.is_leader for partition in self.replicas.manager.partitions.values())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def stop(partitions: int, controller_epoch: int = 1) -> StopReplicaRequest:
    topic = StopReplicaRequestTopic(name="t", partition_indexes=range(partitions))
    return StopReplicaRequest(
        controller_id=0,
        controller_epoch=controller_epoch,
        delete_partitions=True,
        topics=[topic],
    )


def codes(response: LeaderAndIsrResponse | StopReplicaResponse) -> set[int]:
    return {response.error_code, *(error.error_code for error in response.partition_errors)}


async def test_new_partitions_are_led_a_slice_at_a_time_when_their_logs_are_made() -> None:
    broker = Broker()
    request = broker.begin(leader_and_isr("t", MANY, is_new=True))
    for done in range(SLICES):
        await turns()
        assert broker.led == done * PARTITIONS_PER_TURN
        assert len(broker.replicas.directory.children()) == done * PARTITIONS_PER_TURN
        assert not request.done()
        await broker.executor.do_next()
    response = await request
    assert (broker.led, codes(response)) == (MANY, {ErrorCode.NONE})
    assert [e.partition_index for e in response.partition_errors] == list(range(MANY))


async def test_partition_whose_log_is_being_made_is_not_here_yet() -> None:
    broker = Broker()
    request = broker.begin(leader_and_isr("t", is_new=True))
    await turns()
    with pytest.raises(ApiError) as refused:
        broker.replicas.manager.partition(T0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not broker.replicas.manager.is_leadership_known
    await broker.executor.do_next()
    await request
    assert broker.replicas.manager.partition(T0).is_leader
    assert broker.replicas.manager.is_leadership_known


async def test_no_turn_changes_more_partitions_than_a_slice() -> None:
    broker = Broker()
    for done in (False, True):  # new ones, then known ones that are led in another epoch
        slices: list[int] = []
        broker.replicas.manager.leadership.subscribe(
            lambda led, _, slices=slices: slices.append(len(led))
        )
        request = broker.begin(leader_and_isr("t", MANY, epoch=int(done), is_new=not done))
        await turns()
        while broker.executor.asked:
            await broker.executor.do_next()
        await request
        assert slices == [PARTITIONS_PER_TURN] * (SLICES - 1) + [1]


async def test_what_comes_meanwhile_waits_for_its_turn() -> None:
    broker = Broker()
    leading = broker.begin(leader_and_isr("t", 2, is_new=True))
    stopping = broker.begin(stop(2))
    await turns()
    assert not stopping.done()
    await broker.executor.do_next()
    assert codes(await leading) == {ErrorCode.NONE}
    assert broker.replicas.manager.partitions == {}
    await broker.executor.do_next()
    assert codes(await stopping) == {ErrorCode.NONE}
    assert all(name.endswith("-delete") for name in broker.replicas.directory.children())


async def test_partition_keeps_its_role_until_its_log_is_back() -> None:
    broker = Broker()
    broker.replicas.lead("t", leader=1, replicas=(0, 1), isr=(0, 1))
    partition = broker.replicas.manager.partition(T0)
    lent = asyncio.ensure_future(broker.control.work.lend(partition.log, lambda: None))
    await turns()
    leading, stopping = broker.begin(leader_and_isr("t", epoch=1)), broker.begin(stop(1))
    await turns()
    assert (partition.leader, partition.leader_epoch) == (1, 0)
    await broker.executor.do_next()
    await lent
    assert codes(await leading) == {ErrorCode.NONE}
    assert (partition.leader, partition.leader_epoch) == (-1, 1)
    await broker.executor.do_next()
    assert codes(await stopping) == {ErrorCode.NONE}
    assert T0 not in broker.replicas.manager.partitions


async def test_request_is_held_to_the_controller_of_the_time_when_its_turn_comes() -> None:
    broker = Broker()
    first = broker.begin(leader_and_isr("t", is_new=True, controller_epoch=5))
    late = broker.begin(stop(1, controller_epoch=4))
    await turns()
    await broker.executor.do_next()
    assert codes(await first) == {ErrorCode.NONE}
    assert (await late).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.led == 1


def grown_old(broker: Broker, epoch: int) -> Log:
    """Make a log that was loaded at the start, last written in this epoch."""
    log = broker.replicas.manager.logs.get_or_create(T0, broker.replicas.config)
    log.begin_epoch(epoch)
    append_as_fetched(log, memoryview(batch(b"old")), NOW_MS)
    return log


async def test_log_of_an_earlier_topic_of_that_name_is_set_aside_and_begun_anew() -> None:
    broker = Broker()
    old = grown_old(broker, epoch=7)
    request = leader_and_isr("t", epoch=2, replicas=(0, 1), isr=(1,), leader=1)
    assert codes(await broker.obeyed(request)) == {ErrorCode.NONE}
    log = broker.replicas.manager.log(T0)
    assert (log.log_end_offset, log.leader_epochs.entries) == (0, [])
    assert parse(old.directory.name)[1] is Kind.SET_ASIDE


async def test_log_that_the_cluster_counts_on_is_never_taken_for_left_over() -> None:
    broker = Broker()
    log = grown_old(broker, epoch=7)
    request = broker.begin(leader_and_isr("t", epoch=2, replicas=(0, 1), isr=(0,)))
    assert codes(await request) == {ErrorCode.NONE}
    assert broker.replicas.manager.log(T0) is log


@pytest.mark.fault("core-R1")
async def test_log_of_an_earlier_topic_in_the_same_epoch_is_not_part_of_a_new_one() -> None:
    broker = Broker()
    old = grown_old(broker, epoch=0)
    request = leader_and_isr("t", epoch=0, is_new=True)
    assert codes(await broker.obeyed(request)) == {ErrorCode.NONE}
    log = broker.replicas.manager.log(T0)
    assert log.log_end_offset == 0
    assert parse(old.directory.name)[1] is Kind.SET_ASIDE


@pytest.mark.fault("core-R1")
async def test_deletion_that_was_confirmed_outlives_a_power_loss() -> None:
    broker = Broker()
    broker.replicas.lead("t")
    broker.replicas.write(T0, batch(b"deleted"))
    broker.replicas.flush()
    directory = broker.replicas.directory
    directory.child("t-0").fsync_dir()
    stopping = broker.begin(stop(1))
    await turns()
    await broker.executor.do_next()
    assert codes(await stopping) == {ErrorCode.NONE}
    directory.lose_power()
    assert "t-0" not in directory.children()


async def test_deletion_whose_name_cannot_be_synced_is_not_confirmed() -> None:
    broker = Broker()
    broker.replicas.lead("t")
    stopping = broker.begin(stop(1))
    await turns()
    future, work = broker.executor.asked.pop(0)
    broker.replicas.directory.disk.is_broken = True
    future.set_result(as_in_thread(work))
    assert codes(await stopping) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}


async def test_directory_that_goes_while_logs_are_made_in_it_serves_none_of_them() -> None:
    other = MemoryDirectory("other")
    broker = Broker(Replicas(others=(other,)))
    request = broker.begin(leader_and_isr("t", is_new=True))
    await turns()
    logs = broker.replicas.manager.logs
    (failing,) = [log_dir for log_dir in logs.dirs if T0 in log_dir.new_logs]
    logs.take_offline(failing, OSError("broken"))
    await broker.executor.do_next()
    assert codes(await request) == {ErrorCode.NONE}
    log_dir = logs.dir_of(T0)
    assert log_dir is not None
    assert log_dir is not failing


async def test_log_that_cannot_be_made_fails_alone() -> None:
    broker = Broker()
    broker.replicas.config = attrs.evolve(broker.replicas.config, preallocate=True)
    broker.replicas.directory.disk.free_bytes = 1000
    request = broker.begin(leader_and_isr("t", is_new=True))
    await turns()
    await broker.executor.do_next()
    assert codes(await request) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert broker.replicas.manager.partitions == {}


async def test_broker_that_stops_closes_logs_that_were_made_and_never_served() -> None:
    replicas = Replicas()
    logs = replicas.manager.logs
    logs.make([logs.plan(T0, replicas.config, is_new=True)])
    logs.close()
    again = Replicas(directory=replicas.directory)
    log = again.manager.logs.get(T0)
    assert log is not None
    assert (log.damage, log.log_end_offset, log.failure) == (None, 0, None)


def identity(czxid: int) -> TopicIdentity:
    return TopicIdentity(
        topic_id=czxid.to_bytes(16, "big"),
        is_pinned=False,
        topic_czxid=czxid,
        cluster_czxid=1,
        cluster_ctime_ms=NOW_MS,
    )


OLD, NEW = identity(10), identity(20)


def old_log(broker: Broker, topic: TopicIdentity | None = OLD) -> Log:
    """Make the log of an earlier topic, as a start finds it."""
    log = grown_old(broker, epoch=0)
    log.identity = topic
    return log


@pytest.mark.fault("core-R1")
@pytest.mark.parametrize("isr", [(1,), (0, 1)], ids=["a follower", "counted on"])
async def test_log_of_another_topic_is_set_aside_whatever_its_epoch_is(
    isr: tuple[int, ...],
) -> None:
    broker = Broker()
    old = old_log(broker)
    broker.replicas.identities["t"] = NEW
    await broker.obeyed(leader_and_isr("t", epoch=1, replicas=(0, 1), isr=isr, leader=1))
    assert parse(old.directory.name)[1] is Kind.SET_ASIDE
    log = broker.replicas.manager.logs.get(T0)
    assert log is None if 0 in isr else (log is not None and log.log_end_offset == 0)


@pytest.mark.fault("core-R1")
async def test_process_that_slept_through_a_deletion_ends_what_it_serves() -> None:
    broker = Broker()
    broker.replicas.identities["t"] = OLD
    await broker.obeyed(leader_and_isr("t", epoch=5, is_new=True, replicas=(0, 1), isr=(0, 1)))
    old = broker.replicas.manager.log(T0)
    broker.replicas.write(T0, batch(b"old"))

    broker.replicas.identities["t"] = NEW
    response = await broker.obeyed(leader_and_isr("t", epoch=0, is_new=True))
    assert codes(response) == {ErrorCode.NONE}
    log = broker.replicas.manager.log(T0)
    assert (log.log_end_offset, log.identity) == (0, NEW)
    assert parse(old.directory.name)[1] is Kind.SET_ASIDE


async def test_log_of_the_same_topic_is_kept_though_its_replica_is_called_new() -> None:
    broker = Broker()
    log = old_log(broker)
    broker.replicas.identities["t"] = OLD
    await broker.obeyed(leader_and_isr("t", epoch=0, is_new=True))
    assert broker.replicas.manager.log(T0) is log


@pytest.mark.fault("core-R1")
@pytest.mark.parametrize("request_of", [{"epoch": 0, "is_new": True}, {"epoch": 0, "isr": (1,)}])
@pytest.mark.parametrize("topic", [OLD, NEW], ids=["the topic's own", "of an earlier topic"])
async def test_log_that_may_be_of_an_earlier_topic_waits_for_zookeeper_to_say(
    topic: TopicIdentity, request_of: dict[str, Any]
) -> None:
    """A replica is called new until its broker has said that it has the log, however often."""
    broker = Broker()
    log = old_log(broker)
    log.begin_epoch(4)
    broker.replicas.identities["t"] = topic
    broker.replicas.is_zookeeper_silent = True
    request = leader_and_isr("t", replicas=(0, 1), **request_of)
    assert ErrorCode.KAFKA_STORAGE_ERROR in codes(await broker.obeyed(request))
    assert log.directory.name == "t-0"

    broker.replicas.is_zookeeper_silent = False
    assert codes(await broker.obeyed(request)) == {ErrorCode.NONE}
    assert (broker.replicas.manager.log(T0) is log) == (topic is OLD)


async def test_log_without_an_identity_is_served_and_gets_one() -> None:
    broker = Broker()
    log = old_log(broker, None)
    broker.replicas.identities["t"] = NEW
    await broker.obeyed(leader_and_isr("t", epoch=3))
    assert broker.replicas.manager.log(T0) is log
    assert (log.identity, read_identity(log.directory)) == (NEW, NEW)


async def test_identity_that_was_pinned_since_replaces_the_one_beside_the_log() -> None:
    broker = Broker()
    log = old_log(broker)
    pinned = broker.replicas.identities["t"] = attrs.evolve(OLD, is_pinned=True)
    await broker.obeyed(leader_and_isr("t", epoch=3))
    assert broker.replicas.manager.log(T0) is log
    assert read_identity(log.directory) == pinned


async def test_log_is_kept_while_its_topic_cannot_be_read() -> None:
    broker = Broker()
    log = old_log(broker)
    await broker.obeyed(leader_and_isr("t", epoch=3))
    assert broker.replicas.manager.log(T0) is log


async def test_failover_of_known_topics_reads_none_of_them() -> None:
    broker = Broker()
    topics = [f"t{number}" for number in range(3)]
    for topic in topics:
        broker.replicas.identities[topic] = NEW
        await broker.obeyed(leader_and_isr(topic, is_new=True))
    assert broker.replicas.reads == [[topic] for topic in topics]
    for topic in topics:
        await broker.obeyed(leader_and_isr(topic, epoch=1, controller_epoch=2))
    assert len(broker.replicas.reads) == len(topics)


async def test_topic_is_read_again_after_its_deletion_and_where_its_epoch_goes_back() -> None:
    broker = Broker()
    broker.replicas.identities["t"] = NEW
    await broker.obeyed(leader_and_isr("t", 1, 1, (1,), (0, 1), epoch=1))
    await broker.obeyed(stop(1))
    await broker.obeyed(leader_and_isr("t", 1, 1, (1,), (0, 1), epoch=1))
    assert broker.replicas.reads == [["t"], ["t"]]
    await broker.obeyed(leader_and_isr("t", 1, 1, (1,), (0, 1), epoch=0))
    assert broker.replicas.reads == [["t"], ["t"], ["t"]]


def in_use_since(broker: Broker, zxid: int) -> None:
    broker.replicas.manager.logs.note_first_use(FirstUse(zxid, 1, NOW_MS))


@pytest.mark.fault("core-R8")
async def test_trusted_replica_whose_log_was_never_made_begins_with_an_empty_one() -> None:
    broker = Broker()
    in_use_since(broker, NEW.topic_czxid - 1)
    broker.replicas.identities["t"] = NEW
    response = await broker.obeyed(leader_and_isr("t", epoch=3))
    assert codes(response) == {ErrorCode.NONE}
    assert broker.led == 1


async def test_trusted_replica_on_a_disk_that_is_newer_than_its_topic_has_lost_its_log() -> None:
    broker = Broker()
    broker.replicas.identities["t"] = NEW
    assert ErrorCode.LOG_DIR_NOT_FOUND in codes(await broker.obeyed(leader_and_isr("t", epoch=3)))
    in_use_since(broker, NEW.topic_czxid + 1)
    assert ErrorCode.LOG_DIR_NOT_FOUND in codes(await broker.obeyed(leader_and_isr("t", epoch=3)))


async def test_trusted_replica_whose_log_was_there_has_lost_it() -> None:
    broker = Broker()
    in_use_since(broker, NEW.topic_czxid - 1)
    broker.replicas.identities["t"] = NEW
    await broker.obeyed(leader_and_isr("t", epoch=0, is_new=True))
    broker.replicas.manager.logs.close()
    broker.replicas.directory.remove_child("t-0")

    again = Broker(Replicas(directory=broker.replicas.directory))
    again.replicas.identities["t"] = NEW
    assert ErrorCode.LOG_DIR_NOT_FOUND in codes(await again.obeyed(leader_and_isr("t", epoch=3)))


async def test_log_of_an_earlier_topic_is_no_sign_of_a_loss() -> None:
    broker = Broker()
    in_use_since(broker, NEW.topic_czxid - 1)
    old_log(broker)
    broker.replicas.manager.logs.close()
    again = Broker(Replicas(directory=broker.replicas.directory))
    again.replicas.manager.logs.logs[T0].identity = OLD
    again.replicas.identities["t"] = NEW
    assert codes(await again.obeyed(leader_and_isr("t", epoch=3))) == {ErrorCode.NONE}
    assert again.replicas.manager.log(T0).log_end_offset == 0


# ---- replicas that were removed while the broker could not be reached


@pytest.mark.fault("groups-9")
async def test_broker_stops_leading_what_was_moved_away_while_no_controller_reached_it() -> None:
    """Its session had ended, so that it got no StopReplica; the metadata tell when it is back."""
    broker = Broker()
    await broker.obeyed(leader_and_isr("t", 2, replicas=(0, 1), epoch=3, is_new=True))
    told: list[tuple[list[TopicPartition], list[TopicPartition]]] = []
    broker.replicas.manager.leadership.subscribe(
        lambda leaders, followers: told.append((leaders, followers))
    )
    broker.control.stop_removed(update_metadata("t", leader=1, replicas=(1, 2), epoch=4))

    # Whoever coordinates what is in it hears of it, and its log stays for an operator.
    assert told == [([], [T0])]
    assert broker.led == 1
    with pytest.raises(ApiError):
        broker.replicas.manager.partition(T0).require_leader()
    assert len(broker.replicas.directory.children()) == 2


@pytest.mark.parametrize(
    ("replicas", "epoch"),
    [((1, 2), 3), ((1, 2), 2), ((0, 1), 4)],
    ids=["metadata of this epoch", "metadata of an earlier one", "it is a replica still"],
)
async def test_metadata_alone_end_no_role_that_a_controller_may_mean(
    replicas: tuple[int, ...], epoch: int
) -> None:
    broker = Broker()
    await broker.obeyed(leader_and_isr("t", replicas=(0, 1), epoch=3, is_new=True))
    broker.control.stop_removed(update_metadata("t", leader=1, replicas=replicas, epoch=epoch))
    assert broker.led == 1


async def test_leader_resigns_at_once_whatever_else_of_a_request_waits_for_the_disk() -> None:
    broker = Broker()
    await broker.obeyed(leader_and_isr("t", replicas=(0, 1), epoch=3, is_new=True))
    told: list[list[TopicPartition]] = []
    broker.replicas.manager.leadership.subscribe(lambda leaders, followers: told.append(followers))

    request = leader_and_isr("t", 2, leader=1, replicas=(0, 1), epoch=4, is_new=True)
    response = broker.begin(request)
    await turns()
    assert broker.executor.asked
    assert (broker.led, told) == (0, [[T0]])

    await broker.executor.do_next()
    assert codes(await response) == {ErrorCode.NONE}
    assert broker.replicas.manager.partition(T0).leader == 1
