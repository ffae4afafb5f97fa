"""An idempotent producer against a broker that checks numbers, and loses responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.errors import BrokerError, ClientError, DeliveryTimedOut
from clients.producer.producer import Producer
from core_log.producers.producer_state import ProducerState
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.produce import ProduceResponsePartition
from protocol.records.batch import decode_records, read_header
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker, all_versions
from tests.stage.clock import run_in_own_time

P0 = TopicPartition("t", 0)


class NumberedBroker(ScriptedBroker):
    """A broker that checks sequence numbers, and knows each producer, as those up to 2.3.

    `fates` are those of the next requests: a response that replaces the right one after the
    batches have been appended.
    """

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        super().__init__(topics)
        self.producers: dict[TopicPartition, ProducerState] = {}
        self.log_start_offset = 0
        self.fates: list[Any] = []
        self.id_errors: list[ErrorCode] = []
        self.ids = 100
        self.answers[ApiKey.INIT_PRODUCER_ID] = self.init_producer_id

    def init_producer_id(self, _: Any) -> InitProducerIdResponse:
        if self.id_errors:
            return InitProducerIdResponse(error_code=self.id_errors.pop(0))
        self.ids += 1
        return InitProducerIdResponse(producer_id=self.ids, producer_epoch=0)

    def produce(self, request: Any) -> Any:
        answer = super().produce(request)
        return self.fates.pop(0) if self.fates else answer

    def _append(self, partition: TopicPartition, batch: Any) -> ProduceResponsePartition:
        if self.produce_errors:
            return super()._append(partition, batch)
        header = read_header(batch)
        state = self.producers.setdefault(partition, ProducerState())

        try:
            if header.producer_id not in state.producers and header.base_sequence:
                raise ApiError(ErrorCode.UNKNOWN_PRODUCER_ID)
            known = state.check(header)
        except ApiError as error:
            return ProduceResponsePartition(
                index=partition.partition,
                error_code=error.code,
                base_offset=-1,
                log_start_offset=self.log_start_offset,
            )

        base_offset = len(self.log[partition])
        if known is None:
            self.log[partition] += decode_records(batch)
            state.update(header, base_offset + header.last_offset_delta, header.max_timestamp)
        else:
            base_offset = known.base_offset

        return ProduceResponsePartition(
            index=partition.partition, error_code=0, base_offset=base_offset
        )

    def numbers(self) -> list[tuple[int, int]]:
        """Return (epoch, first number) of each batch that was sent to partition 0."""
        headers = [
            read_header(part.records)
            for request in self.asked(ApiKey.PRODUCE)
            for topic in request.topic_data
            for part in topic.partition_data
            if part.index == 0
        ]
        return [(header.producer_epoch, header.base_sequence) for header in headers]


Scenario = Callable[[Producer, NumberedBroker], Awaitable[Any]]


def with_producer(scenario: Scenario, partitions: int = 1, **settings: Any) -> None:
    """Run a scenario with an idempotent producer of topic t, with a time limit."""

    async def run() -> None:
        async with NumberedBroker({"t": partitions}) as broker:
            fast = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, **settings}
            async with Producer(
                bootstrap_servers=broker.bootstrap, enable_idempotence=True, **fast
            ) as producer:
                await scenario(producer, broker)

    run_in_own_time(run())


def values(broker: ScriptedBroker, partition: TopicPartition = P0) -> list[bytes | None]:
    return [record.value for record in broker.log[partition]]


def test_records_are_numbered_and_answered_by_all() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        for number in range(3):
            await producer.send_and_wait("t", b"%d" % number)
        assert broker.numbers() == [(0, 0), (0, 1), (0, 2)]
        assert {request.acks for request in broker.asked(ApiKey.PRODUCE)} == {-1}
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 1

    with_producer(scenario)


def test_a_batch_whose_answer_was_lost_is_written_once() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"first")
        broker.fates = [HANG_UP, HANG_UP]
        at = await producer.send_and_wait("t", b"second")
        assert at.offset == 1
        assert values(broker) == [b"first", b"second"]
        assert broker.numbers() == [(0, 0), (0, 1), (0, 1), (0, 1)]

    with_producer(scenario)


def test_a_first_batch_whose_answer_was_lost_is_written_once_by_whichever_log_leads() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        # The log that had it is truncated, or another leads that never had it.
        def truncate(request: Any) -> Any:
            broker.produce(request)
            broker.log[P0].clear()
            broker.producers.clear()
            broker.answers[ApiKey.PRODUCE] = broker.produce
            return HANG_UP

        broker.answers[ApiKey.PRODUCE] = truncate
        await producer.send_and_wait("t", b"first")
        broker.fates = [HANG_UP]
        await producer.send_and_wait("t", b"second")
        assert values(broker) == [b"first", b"second"]
        assert broker.numbers() == [(0, 0), (0, 0), (0, 1), (0, 1)]

    with_producer(scenario)


def test_a_first_batch_that_was_given_up_and_comes_late_is_not_written_behind_the_next() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        late: list[Any] = []

        def keep(request: Any) -> Any:
            late.append(request)
            return SILENCE

        broker.answers[ApiKey.PRODUCE] = keep
        with pytest.raises(DeliveryTimedOut):
            await producer.send_and_wait("t", b"given up")
        broker.answers[ApiKey.PRODUCE] = broker.produce
        await producer.send_and_wait("t", b"next")
        for request in late:
            broker.produce(request)
        assert values(broker) == [b"next"]
        assert broker.numbers()[-1] == (1, 0)

    with_producer(scenario, request_timeout_ms=200, delivery_timeout_ms=300)


def test_many_records_over_losses_arrive_once_and_in_order() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        sent = []
        for number in range(300):
            if number % 50 == 20:
                broker.fates.append(HANG_UP)
            sent.append(await producer.send("t", b"%d" % number, partition=number % 3))
        await asyncio.gather(*sent)
        for index in range(3):
            expected = [b"%d" % n for n in range(300) if n % 3 == index]
            assert values(broker, TopicPartition("t", index)) == expected

    with_producer(scenario, partitions=3, batch_size=300)


def test_a_batch_that_is_split_keeps_the_numbers_in_line() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        broker.produce_errors = [ErrorCode.MESSAGE_TOO_LARGE]
        sent = [await producer.send("t", b"%d" % number) for number in range(4)]
        await asyncio.gather(*sent)
        await producer.send_and_wait("t", b"4")
        assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.numbers() == [(0, 0), (0, 0), (0, 2), (0, 4)]

    with_producer(scenario, linger_ms=20)


def test_after_a_batch_that_was_given_up_a_new_epoch_begins() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"a")
        broker.produce_errors = [ErrorCode.INVALID_TIMESTAMP]
        with pytest.raises(ApiError):
            await producer.send_and_wait("t", b"refused")
        await producer.send_and_wait("t", b"b")
        assert values(broker) == [b"a", b"b"]
        assert broker.numbers() == [(0, 0), (0, 1), (1, 0)]

    with_producer(scenario)


def test_records_that_timed_out_may_be_there_and_later_ones_are_taken_all_the_same() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"a")
        broker.fates = [SILENCE, SILENCE]
        with pytest.raises(DeliveryTimedOut):
            await producer.send_and_wait("t", b"unanswered")
        await producer.send_and_wait("t", b"b")
        assert values(broker) == [b"a", b"unanswered", b"b"]
        assert broker.numbers() == [(0, 0), (0, 1), (0, 1), (1, 0)]

    with_producer(scenario, request_timeout_ms=200, delivery_timeout_ms=300)


@pytest.mark.fault("strangers-123")
def test_a_batch_that_may_have_been_written_is_not_split() -> None:
    """Its first attempt is in the log, and a limit was lowered before the next one."""

    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        broker.fates = [HANG_UP]
        sent = [await producer.send("t", b"%d" % n) for n in range(10)]
        await broker.received(ApiKey.PRODUCE)
        broker.produce_errors = [ErrorCode.MESSAGE_TOO_LARGE]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert {type(result) for result in results} == {BrokerError}
        assert all("the records may be in the log" in str(result) for result in results)
        await producer.send_and_wait("t", b"next")
        assert values(broker) == [*(b"%d" % n for n in range(10)), b"next"]

    with_producer(scenario, linger_ms=20)


def test_a_forgotten_producer_sends_again_what_was_never_sent_before() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"a")
        broker.producers.clear()
        await producer.send_and_wait("t", b"b")
        assert values(broker) == [b"a", b"b"]
        assert broker.numbers() == [(0, 0), (0, 1), (1, 0)]

    with_producer(scenario)


def test_what_a_forgetful_broker_may_have_written_fails_by_name_and_later_records_go_on() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"a")

        def forgets(request: Any) -> Any:
            broker.producers.clear()
            broker.answers[ApiKey.PRODUCE] = broker.produce
            return HANG_UP

        broker.answers[ApiKey.PRODUCE] = forgets
        with pytest.raises(ApiError, match="whether an earlier attempt was written") as failed:
            await producer.send_and_wait("t", b"b")
        assert failed.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
        await producer.send_and_wait("t", b"c")
        assert values(broker) == [b"a", b"c"]

    with_producer(scenario)


def test_a_producer_forgotten_with_its_records_sends_again() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"a")
        broker.log_start_offset = 1

        def forgets(request: Any) -> Any:
            broker.producers.clear()
            broker.answers[ApiKey.PRODUCE] = broker.produce
            return HANG_UP

        broker.answers[ApiKey.PRODUCE] = forgets
        await producer.send_and_wait("t", b"b")
        assert values(broker) == [b"a", b"b"]

    with_producer(scenario)


def test_a_broker_that_lost_records_is_told_of() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        await producer.send_and_wait("t", b"a")
        kept = broker.producers.copy()
        await producer.send_and_wait("t", b"b")
        header = read_header(
            broker.asked(ApiKey.PRODUCE)[0].topic_data[0].partition_data[0].records
        )
        kept[P0] = broker.producers[P0] = ProducerState()
        kept[P0].update(header, 0, 0)
        with pytest.raises(ApiError, match="has lost records") as failed:
            await producer.send_and_wait("t", b"c")
        assert failed.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await producer.send_and_wait("t", b"d")
        assert values(broker)[-1] == b"d"

    with_producer(scenario)


def test_an_id_is_asked_for_until_there_is_one() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        broker.id_errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        await producer.send_and_wait("t", b"a")
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 3

    with_producer(scenario)


def test_without_permission_for_an_id_records_fail_and_the_next_ones_try_again() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        broker.id_errors = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        with pytest.raises(ApiError) as failed:
            await producer.send_and_wait("t", b"a")
        assert failed.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await producer.send_and_wait("t", b"b")
        assert values(broker) == [b"b"]

    with_producer(scenario)


def test_a_broker_too_old_for_ids_fails_the_records() -> None:
    async def scenario(producer: Producer, broker: NumberedBroker) -> None:
        known = all_versions()
        keys = [key for key in known.api_keys if key.api_key != ApiKey.INIT_PRODUCER_ID]
        broker.answers[ApiKey.API_VERSIONS] = lambda _: type(known)(error_code=0, api_keys=keys)
        with pytest.raises(ClientError, match=r"enable\.idempotence.*INIT_PRODUCER_ID"):
            await producer.send_and_wait("t", b"a")

    with_producer(scenario)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("acks", "0"),
        ("retries", 0),
        ("max.in.flight.requests.per.connection", 6),
    ],
)
def test_settings_that_contradict_it_are_refused_by_name(name: str, value: Any) -> None:
    settings = {"bootstrap.servers": "h:1", "enable.idempotence": "true", name: value}
    with pytest.raises(SettingError, match=r"enable\.idempotence") as refused:
        Producer(settings)
    assert refused.value.name == name


def test_acks_that_were_not_set_become_all() -> None:
    assert Producer(bootstrap_servers="h:1", enable_idempotence=True).config.required_acks == -1
    assert Producer(bootstrap_servers="h:1").config.required_acks == 1
