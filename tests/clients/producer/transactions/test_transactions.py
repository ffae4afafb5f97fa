"""A transactional producer against a coordinator that refuses, and loses responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.errors import (
    DeadlineExceeded,
    InvalidTransactionState,
    ProducerClosed,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
    TransactionInDoubt,
)
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.clients.producer.transactions.coordinating_broker import (
    TRANSACTIONS,
    CoordinatingBroker,
)
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.stage.clock import ImpatientLoop, run_in_own_time

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OFFSETS = {P0: OffsetAndMetadata(7)}
MEMBER = ConsumerGroupMetadata("g", 1, "m")

Scenario = Callable[[Producer, CoordinatingBroker], Awaitable[Any]]


def with_producer(scenario: Scenario, broker: CoordinatingBroker | None = None, **more: Any) -> Any:
    """Run a scenario with a producer that is initialized, with a time limit."""

    async def run() -> Any:
        async with broker or CoordinatingBroker({"t": 3}) as serving:
            settings = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 1, **more}
            async with Producer(
                bootstrap_servers=serving.bootstrap, transactional_id="x", **settings
            ) as producer:
                return await scenario(producer, serving)

    return run_in_own_time(run(), loop=ImpatientLoop)


async def send_all(producer: Producer, *values: bytes) -> list[asyncio.Future[Any]]:
    """Send a value to each partition in turn."""
    return [
        await producer.send("t", value, partition=number % 3) for number, value in enumerate(values)
    ]


def test_records_and_offsets_count_when_the_transaction_is_committed() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        async with producer.transaction():
            await send_all(producer, b"a", b"b", b"c", b"d")
            await producer.send_offsets_to_transaction(OFFSETS, MEMBER)
            await producer.flush()
            assert not broker.committed
            assert not broker.offsets
        assert broker.committed == {P0: [b"a", b"d"], P1: [b"b"], P2: [b"c"]}
        assert broker.offsets == {P0: 7}

        # Three partitions in one request, before anything is written to them.
        (adding,) = broker.asked(ApiKey.ADD_PARTITIONS_TO_TXN)
        assert [list(topic.partitions) for topic in adding.topics] == [[0, 1, 2]]
        assert broker.timeout_ms == 60_000

    with_producer(scenario)


def test_an_exception_in_the_block_aborts_the_transaction() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        sent = []

        async def run() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"a", partition=0)
                sent.append(await producer.send("t", b"b", partition=1))
                raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            await run()
        assert broker.state == "CompleteAbort"
        assert isinstance(sent[0].exception(), TransactionAborted)

        # Partitions go on with their numbers.
        async with producer.transaction():
            await send_all(producer, b"c", b"d")
        assert broker.committed == {P0: [b"c"], P1: [b"d"]}

    with_producer(scenario)


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PRODUCE,
        ApiKey.END_TXN,
    ],
)
def test_a_response_that_is_lost_changes_nothing(key: ApiKey) -> None:
    broker = CoordinatingBroker({"t": 3})
    broker.losses[key] = 2

    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        for number in range(3):
            async with producer.transaction():
                await send_all(producer, b"%d" % number)
                await producer.send_offsets_to_transaction({P0: OffsetAndMetadata(number)}, MEMBER)
        assert broker.committed == {P0: [b"0", b"1", b"2"]}
        assert broker.offsets == {P0: 2}
        assert not broker.losses[key]

    with_producer(scenario, broker)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_refusals_that_pass_are_borne(code: ErrorCode) -> None:
    broker = CoordinatingBroker({"t": 3})
    for key in (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ):
        broker.refusals[key] = [code] * 3

    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        async with producer.transaction():
            await send_all(producer, b"a", b"b")
            await producer.send_offsets_to_transaction(OFFSETS, MEMBER)
        assert broker.committed == {P0: [b"a"], P1: [b"b"]}
        assert broker.offsets == {P0: 7}

        # Whoever names the coordinator is asked again where it has moved.
        has_moved = code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert (len(broker.asked(ApiKey.FIND_COORDINATOR)) > 2) == has_moved

    with_producer(scenario, broker)


def test_a_record_that_is_not_delivered_fails_the_commit_and_the_block_can_be_run_again() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        broker.produce_errors = [ErrorCode.UNKNOWN_SERVER_ERROR]
        with pytest.raises(TransactionFailed, match=r"UNKNOWN_SERVER_ERROR: t-0.* run it again"):
            async with producer.transaction():
                await send_all(producer, b"a", b"b")
        assert broker.state == "CompleteAbort"
        assert broker.epoch == 0
        async with producer.transaction():
            await send_all(producer, b"a", b"b")
        assert broker.committed == {P0: [b"a"], P1: [b"b"]}

    with_producer(scenario)


def test_a_batch_that_may_be_written_is_followed_by_another_epoch() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        broker.losses[ApiKey.PRODUCE] = 10**6
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                await send_all(producer, b"a")
        broker.losses.clear()
        assert broker.epoch == 1
        renewal = broker.asked(ApiKey.INIT_PRODUCER_ID)[-1]
        assert (renewal.producer_id, renewal.producer_epoch) == (100, 0)
        async with producer.transaction():
            await send_all(producer, b"a")
        assert broker.committed == {P0: [b"a"]}

    with_producer(scenario, delivery_timeout_ms=200, request_timeout_ms=100)


def test_after_a_failure_calls_raise_it_until_the_transaction_is_aborted() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        broker.produce_errors = [ErrorCode.INVALID_RECORD]
        await asyncio.wait(await send_all(producer, b"a"))
        for call in (
            producer.send("t", b"b"),
            producer.begin_transaction(),
            producer.commit_transaction(),
            producer.send_offsets_to_transaction(OFFSETS, MEMBER),
        ):
            with pytest.raises(TransactionFailed, match="INVALID_RECORD"):
                await call
        await producer.abort_transaction()
        async with producer.transaction():
            await send_all(producer, b"b")

    with_producer(scenario)


def test_a_producer_that_is_fenced_can_only_be_closed() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        broker.another_producer()
        with pytest.raises(ProducerFenced, match="another producer has this id") as fenced:
            await producer.commit_transaction()
        assert fenced.value.code is ErrorCode.PRODUCER_FENCED
        assert not fenced.value.transaction_in_doubt
        for call in (
            producer.send("t", b"b"),
            producer.begin_transaction(),
            producer.abort_transaction(),
            producer.init_transactions(),
        ):
            with pytest.raises(ProducerFenced):
                await call
        assert not broker.committed

    with_producer(scenario)


def test_a_consumer_of_another_generation_is_refused_and_nothing_is_committed() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        broker.generation = 2
        with pytest.raises(TransactionFailed, match="rebalanced since") as failed:
            await producer.send_offsets_to_transaction(OFFSETS, MEMBER)
        await producer.abort_transaction()
        assert failed.value.code is ErrorCode.ILLEGAL_GENERATION
        assert not broker.committed
        assert not broker.offsets

    with_producer(scenario)


@pytest.mark.parametrize("handed_out", [{}, {P0: None}, {P0: 6}, {P1: 9}])
def test_offsets_of_messages_that_the_consumer_does_not_own_are_refused(
    handed_out: dict[TopicPartition, int | None],
) -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        metadata = ConsumerGroupMetadata("g", 1, "m", handed_out=handed_out)
        with pytest.raises(TransactionFailed, match="does not own t-0"):
            async with producer.transaction():
                await producer.send_offsets_to_transaction(OFFSETS, metadata)
        assert not broker.asked(ApiKey.TXN_OFFSET_COMMIT)

    with_producer(scenario)


def test_offsets_that_cannot_be_sent_cost_the_transaction_alone() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        for offset in (-1, 1 << 63):
            with pytest.raises(ValueError, match=f"t-0: offset {offset} cannot be committed"):
                await producer.send_offsets_to_transaction({P0: OffsetAndMetadata(offset)}, MEMBER)
        with pytest.raises(ValueError, match="t-0: metadata has no UTF-8 form"):
            await producer.send_offsets_to_transaction({P0: OffsetAndMetadata(7, "\ud800")}, MEMBER)
        unsendable = ConsumerGroupMetadata("g", 1, "\ud800")
        with pytest.raises(TransactionFailed, match="has no UTF-8 form"):
            async with producer.transaction():
                await producer.send_offsets_to_transaction(OFFSETS, unsendable)
        async with producer.transaction():
            await producer.send_offsets_to_transaction(OFFSETS, MEMBER)
        assert broker.offsets == {P0: 7}

    with_producer(scenario)


# ---- commits of which nobody knows


def test_a_commit_that_takes_too_long_is_in_doubt_and_goes_on() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        answer = broker.answers[ApiKey.END_TXN]
        broker.answers[ApiKey.END_TXN] = lambda request: SILENCE
        with pytest.raises(TransactionInDoubt, match="Call commit_transaction again") as late:
            await producer.commit_transaction()
        assert late.value.transaction_in_doubt
        assert late.value.retriable

        # The other decision, and another transaction, have to wait for the first.
        for call in (producer.abort_transaction(), producer.begin_transaction()):
            with pytest.raises(InvalidTransactionState, match="commit_transaction again"):
                await call

        broker.answers[ApiKey.END_TXN] = answer
        await producer.commit_transaction()
        assert broker.committed == {P0: [b"a"]}
        assert all(request.committed for request in broker.asked(ApiKey.END_TXN))

    with_producer(scenario, max_block_ms=150, request_timeout_ms=100)


def test_a_commit_in_doubt_names_the_coordinator_that_does_not_respond() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        answer = broker.answers[ApiKey.END_TXN]
        broker.answers[ApiKey.END_TXN] = lambda request: HANG_UP
        with pytest.raises(TransactionInDoubt, match=f"127.0.0.1:{broker.port}: closed by"):
            await producer.commit_transaction()
        broker.answers[ApiKey.END_TXN] = answer
        await producer.commit_transaction()

    with_producer(scenario, max_block_ms=150)


def test_a_commit_that_ended_unseen_is_asked_for_before_the_next_transaction() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        broker.refusals[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 40
        with pytest.raises(TransactionInDoubt):
            await producer.commit_transaction()
        while broker.state != "CompleteCommit":
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        with pytest.raises(InvalidTransactionState, match="says how it ended"):
            await producer.begin_transaction()
        await producer.commit_transaction()
        async with producer.transaction():
            await send_all(producer, b"b")
        assert broker.committed == {P0: [b"a", b"b"]}

    with_producer(scenario, max_block_ms=150)


def test_a_commit_that_was_written_before_the_producer_was_fenced_is_in_doubt() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        broker.losses[ApiKey.END_TXN] = 1
        answer = broker.answers[ApiKey.END_TXN]

        def commit_and_fence(request: Any) -> Any:
            response = answer(request)
            broker.another_producer()
            return response

        broker.answers[ApiKey.END_TXN] = commit_and_fence
        with pytest.raises(ProducerFenced, match="committed is not known") as fenced:
            await producer.commit_transaction()
        assert fenced.value.transaction_in_doubt
        assert broker.committed == {P0: [b"a"]}

    with_producer(scenario)


def test_a_commit_whose_caller_is_cancelled_goes_on() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        async def run() -> None:
            async with producer.transaction():
                await send_all(producer, b"a")

        broker.refusals[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
        running = asyncio.create_task(run())
        await broker.received(ApiKey.END_TXN)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await producer.commit_transaction()
        assert broker.committed == {P0: [b"a"]}

    with_producer(scenario)


def test_an_abort_that_takes_too_long_is_waited_for_by_the_next_transaction() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        broker.refusals[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 40
        with pytest.raises(DeadlineExceeded, match=r"abort_transaction .*CONCURRENT_TRANSACTIONS"):
            await producer.abort_transaction()
        while True:
            try:
                await producer.begin_transaction()
                break
            except DeadlineExceeded:
                continue
        await send_all(producer, b"b")
        await producer.commit_transaction()
        assert broker.committed == {P0: [b"b"]}

    with_producer(scenario, max_block_ms=100)


# ---- calls that do not fit


def test_records_are_taken_in_a_transaction_alone() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        with pytest.raises(InvalidTransactionState, match="call begin_transaction"):
            await producer.send("t", b"a")
        with pytest.raises(InvalidTransactionState, match="call begin_transaction"):
            await producer.send_many("t", [b"a", b"b"])
        with pytest.raises(InvalidTransactionState):
            await producer.commit_transaction()
        await producer.begin_transaction()
        with pytest.raises(InvalidTransactionState, match="commit or abort it"):
            await producer.begin_transaction()
        await producer.send_many("t", [b"a", b"b"], partition=0)
        await producer.commit_transaction()
        assert broker.committed == {P0: [b"a", b"b"]}

    with_producer(scenario)


def test_a_send_that_waits_for_room_does_not_slip_into_the_next_transaction() -> None:
    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        parked = broker.answers[ApiKey.PRODUCE]
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.begin_transaction()
        await producer.send("t", b"." * 900, partition=0)
        waiting = asyncio.create_task(producer.send("t", b"late" * 50, partition=1))  # type: ignore[arg-type]
        await broker.received(ApiKey.PRODUCE)
        broker.answers[ApiKey.PRODUCE] = parked
        ending = asyncio.create_task(producer.abort_transaction())
        with pytest.raises((InvalidTransactionState, TransactionAborted)):
            await waiting
        await ending
        async with producer.transaction():
            pass
        assert not broker.committed

    with_producer(scenario, buffer_memory=1000, request_timeout_ms=100)


def test_a_producer_without_the_setting_has_no_transactions() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker({"t": 1}) as broker,
            Producer(bootstrap_servers=broker.bootstrap) as producer,
        ):
            for call in (
                producer.init_transactions(),
                producer.begin_transaction(),
                producer.transaction().__aenter__(),
            ):
                with pytest.raises(InvalidTransactionState, match=r"needs .* transactional\.id"):
                    await call
            await producer.send_and_wait("t", b"a")
            (request,) = broker.asked(ApiKey.PRODUCE)
            assert request.transactional_id is None

    run_in_own_time(scenario(), loop=ImpatientLoop)


@pytest.mark.parametrize(
    "settings",
    [
        {"enable.idempotence": "false"},
        {"acks": "1"},
        {"retries": "0"},
        {"max.in.flight.requests.per.connection": "6"},
        {"producer.type": "sync"},
    ],
)
def test_settings_that_contradict_transactions_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(SettingError):
        Producer({"bootstrap.servers": "h:1", "transactional.id": "x", **settings})


# ---- beginning and closing


def test_entering_waits_for_the_transaction_of_the_former_producer_to_be_aborted() -> None:
    broker = CoordinatingBroker({"t": 3})

    async def former(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"former", partition=0)

        # A second one in the place of the first, which is cut off and does not know it.
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "x"}
        async with Producer(settings, retry_backoff_ms=5) as later, later.transaction():
            await later.send("t", b"later", partition=0)
        assert broker.committed == {P0: [b"later"]}
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()

    with_producer(former, broker)
    assert broker.committed == {P0: [b"later"]}


def test_a_producer_that_cannot_have_its_id_is_closed_by_the_block_that_it_would_begin() -> None:
    async def scenario() -> None:
        async with CoordinatingBroker({"t": 1}) as broker:
            broker.refusals[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.INVALID_TRANSACTION_TIMEOUT]
            producer = Producer(bootstrap_servers=broker.bootstrap, transactional_id="x")
            with pytest.raises(ProducerFailed, match=r"transaction\.max\.timeout\.ms"):
                async with producer:
                    pytest.fail("it has no id")
            with pytest.raises(ProducerClosed):
                await producer.begin_transaction()

    run_in_own_time(scenario(), loop=ImpatientLoop)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"INIT_PRODUCER_ID": (9, 9)}, "INIT_PRODUCER_ID"),
        ({"FIND_COORDINATOR": (0, 0)}, "coordinates groups alone"),
    ],
)
def test_a_broker_without_transactions_is_named_in_one_sentence(
    versions: dict[str, tuple[int, int]], words: str
) -> None:
    async def scenario() -> None:
        async with CoordinatingBroker({"t": 1}) as broker:
            broker.versions = versions
            with pytest.raises(ProducerFailed, match=words) as failed:
                async with Producer(bootstrap_servers=broker.bootstrap, transactional_id="x"):
                    pytest.fail("there are no transactions")
            assert failed.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert "\n" not in str(failed.value)

    run_in_own_time(scenario(), loop=ImpatientLoop)


def test_a_broker_that_cannot_check_a_member_takes_the_offsets_of_a_group_alone() -> None:
    broker = CoordinatingBroker({"t": 3})
    broker.versions = {"TXN_OFFSET_COMMIT": (0, 2)}

    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        with pytest.raises(TransactionFailed, match=r"Kafka 2\.5 and later"):
            async with producer.transaction():
                await producer.send_offsets_to_transaction(OFFSETS, MEMBER)
        async with producer.transaction():
            await producer.send_offsets_to_transaction(OFFSETS, ConsumerGroupMetadata("g"))
        assert broker.offsets == {P0: 7}

    with_producer(scenario, broker)


def test_a_producer_that_closes_aborts_its_transaction() -> None:
    broker = CoordinatingBroker({"t": 3})

    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)

    with_producer(scenario, broker)
    assert broker.state == "CompleteAbort"


def test_a_producer_that_closes_waits_for_a_commit_in_doubt() -> None:
    broker = CoordinatingBroker({"t": 3})

    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        broker.refusals[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 30
        with pytest.raises(TransactionInDoubt):
            await producer.commit_transaction()

    with_producer(scenario, broker, max_block_ms=150)
    assert broker.committed == {P0: [b"a"]}


def test_a_close_ends_the_waits_of_others() -> None:
    broker = CoordinatingBroker({"t": 3})

    async def scenario(producer: Producer, broker: CoordinatingBroker) -> None:
        await producer.begin_transaction()
        await send_all(producer, b"a")
        broker.answers[ApiKey.END_TXN] = lambda request: SILENCE
        committing = asyncio.create_task(producer.commit_transaction())
        await broker.received(ApiKey.END_TXN)
        await producer.close(timeout_ms=0)
        with pytest.raises(ProducerClosed):
            await committing
        for call in (producer.begin_transaction(), producer.abort_transaction()):
            with pytest.raises(ProducerClosed):
                await call

    with_producer(scenario, broker)


@pytest.mark.fault("groups-3")
@pytest.mark.parametrize("is_performed", [False, True])
@pytest.mark.parametrize(
    "key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ],
)
def test_silent_coordinator_is_waited_for_until_another_broker_coordinates(
    key: ApiKey, is_performed: bool
) -> None:
    async def run() -> None:
        # The first broker, the only address that the producer is given, is the coordinator.
        async with CoordinatingBroker({"t": 3}) as second, ScriptedBroker({"t": 3}, 1) as first:
            first.peers, second.peers = {0: second.port}, {1: first.port}
            first.leaders = dict.fromkeys((P0, P1, P2), 0)

            def find_first(request: Any) -> FindCoordinatorResponse:
                return FindCoordinatorResponse(
                    error_code=0, node_id=1, host="127.0.0.1", port=first.port
                )

            find_second = second.answers[ApiKey.FIND_COORDINATOR]
            second.answers[ApiKey.FIND_COORDINATOR] = find_first

            def fall_silent(request: Any) -> Any:
                if is_performed:
                    second.answers[key](request)
                for each in first.answers:
                    first.answers[each] = lambda request: SILENCE
                second.answers[ApiKey.FIND_COORDINATOR] = find_second
                return SILENCE

            for each in (ApiKey.API_VERSIONS, *TRANSACTIONS):
                first.answers[each] = second.answers[each]
            first.answers[key] = fall_silent

            settings: dict[str, Any] = {"retry_backoff_ms": 5, "request_timeout_ms": 100_000}
            settings |= {"max_block_ms": 200_000, "delivery_timeout_ms": 200_000}
            async with Producer(
                bootstrap_servers=first.bootstrap, transactional_id="x", **settings
            ) as producer:
                async with producer.transaction():
                    await send_all(producer, b"a", b"b")
                    await producer.send_offsets_to_transaction(OFFSETS, MEMBER)
                async with producer.transaction():
                    await send_all(producer, b"c")
            assert second.committed == {P0: [b"a", b"c"], P1: [b"b"]}
            assert second.offsets == {P0: 7}

    run_in_own_time(run(), loop=ImpatientLoop)
