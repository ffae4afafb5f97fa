"""Perform what `decide` wants: the shell of a producer's transactions.

The producer calls it for its application. The sender asks it which partitions may be sent to, and
tells it what became of batches. One task sends the requests, one at a time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionFailed,
    DeadlineExceeded,
    InvalidTransactionState,
    ProducerClosed,
    TransactionAborted,
    TransactionError,
    TransactionInDoubt,
    UnsupportedApi,
)
from clients.group_metadata import ConsumerGroupMetadata
from clients.producer.accumulator import Accumulator
from clients.producer.config import ProducerConfig
from clients.producer.deliveries import Batch, Delivery
from clients.producer.transactions import effects as do
from clients.producer.transactions import events as on
from clients.producer.transactions.decide import decide
from clients.producer.transactions.numbers import TransactionNumbers
from clients.producer.transactions.requests import (
    FIRST_VERSION_OF_MEMBERS,
    FIRST_VERSION_OF_RENEWALS,
    CommitOffsets,
    Identity,
    Initialize,
    Offsets,
    Request,
    coordinator_key,
    encode,
    read_codes,
)
from clients.producer.transactions.state import Failure, Phase, Transaction
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition

PURPOSE = "transactions"
"""A connection of their own: a produce request waits for replicas, and brokers respond in order."""

GATHER_TURNS = 3
"""Turns of the loop that an application may need from one partition to the next."""
MOST_GATHERED = 1000
"""Number of partitions that are added without a look whether there are more."""

Done = asyncio.Future[None]


@attrs.define(eq=False)
class _Ending:
    """A commit or an abort that the application asked for."""

    commit: bool
    done: Done
    is_known: bool = False
    """True if the application has got the result."""


class Transactions:
    """The transactions of one producer.

    `drop_queued` gives up the batches that are not in flight, and returns the partitions of those
    that may be written. `wake` makes the sender look for what to send.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator[Delivery],
        drop_queued: Callable[[Callable[[], Exception]], frozenset[TopicPartition]],
        wake: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.numbers = TransactionNumbers()
        self._accumulator = accumulator
        # No record before the first transaction.
        accumulator.is_open = False
        self._transaction = Transaction(
            Identity(config.transactional_id),
            config.transaction_timeout_ms,
            config.retry_backoff_ms,
        )
        self._max_block_ms = config.max_block_ms
        self._cluster = cluster
        self._drop_queued = drop_queued
        self._wake = wake

        # ---- the request to send next, and who waits for what
        self._next: do.Send | do.Pause | do.Gather | None = None
        self._endpoint: BrokerEndpoint | None = None
        """The coordinator that was asked last."""
        self._has_next = asyncio.Event()
        self._initializing: Done | None = None
        self._offsets: list[Done] = []
        self._ending: _Ending | None = None
        self._is_hurrying = False
        self._closed = False

        self.number = 0
        """Number of the open transaction, or of the last one."""

    # ---- the application's calls

    async def initialize(self) -> None:
        """Get the producer's id. Does nothing if it has one."""
        call = "init_transactions"
        phase = self._transaction.phase
        if phase is Phase.UNINITIALIZED:
            self._initializing = self._new_wait()
            self._handle(on.InitializeAsked())
        elif phase is Phase.FAILED:
            raise self._transaction.misuse(call)

        if self._initializing is not None:
            await self._wait(self._initializing, call)

    async def begin(self) -> None:
        """Begin a transaction. An abort that still goes on is waited for."""
        call = "begin_transaction"
        ending = self._ending
        if ending is not None and not ending.commit and not ending.done.done():
            await self._wait(ending.done, "abort_transaction")

        # Its outcome is known here, and nobody has asked for it.
        is_unknown = ending is not None and ending.commit and not ending.is_known
        if is_unknown and self._transaction.phase is Phase.READY:
            name = self._transaction.identity.transactional_id
            raise InvalidTransactionState(
                f"transactional.id {name}: {call} is refused: the last commit did not return; call "
                "commit_transaction again, which says how it ended"
            )

        self._check(Phase.OPEN, call)
        self._ending = None
        self.number += 1
        self._handle(on.BeginAsked())

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        """Commit offsets with the transaction."""
        call = "send_offsets_to_transaction"
        self.check_open(call)
        if not isinstance(group, ConsumerGroupMetadata):
            raise TypeError(f"{group!r} is no ConsumerGroupMetadata")
        foreign = group.foreign(offsets)
        if foreign:
            named = ", ".join(map(str, foreign))
            self._handle(
                on.OffsetsForeign(
                    f"{call} of group {group.group_id}: the consumer does not own {named}, or has "
                    "not handed out messages up to that offset since it does"
                )
            )
            raise self._transaction.misuse(call)
        if not offsets:
            return

        done = self._new_wait()
        self._offsets.append(done)
        self._handle(on.OffsetsAsked(CommitOffsets(group, group.with_epochs(offsets))))
        await self._wait(done, call)

    async def commit(self) -> None:
        """Commit the transaction. After TransactionInDoubt it returns how that commit ended."""
        call = "commit_transaction"
        ending = self._ending
        is_repeated = ending is not None and ending.commit and not ending.is_known
        if ending is None or not is_repeated:
            self._check(Phase.COMMITTING, call)
            ending = self._begin_ending(commit=True)

        try:
            await self._wait(ending.done, call)
        except DeadlineExceeded as late:
            name = self._transaction.identity.transactional_id
            raise TransactionInDoubt(
                f"transactional.id {name}: {late}; the transaction may be committed or not. Call "
                "commit_transaction again, which goes on waiting",
                transaction_in_doubt=True,
            ) from None
        except Exception:
            ending.is_known = True
            raise
        ending.is_known = True

    async def abort(self) -> None:
        """Abort the transaction. After DeadlineExceeded it goes on waiting."""
        call = "abort_transaction"
        ending = self._ending
        is_repeated = ending is not None and not ending.commit and not ending.is_known
        if ending is None or not is_repeated:
            self._check(Phase.ABORTING, call)
            ending = self._begin_ending(commit=False)

        await self._wait(ending.done, call)
        ending.is_known = True

    @property
    def is_open(self) -> bool:
        """True if records may be sent."""
        return self._transaction.phase is Phase.OPEN

    @property
    def can_abort(self) -> bool:
        """True if the transaction is open, or has failed and is not aborted."""
        return self._transaction.phase in (Phase.OPEN, Phase.MUST_ABORT)

    def check_open(self, call: str, number: int | None = None) -> None:
        """Raise the error of a call that needs an open transaction, unless there is one.

        With `number` it must be that one.
        """
        if self._closed:
            raise ProducerClosed("the producer is closed")
        if not self.is_open:
            raise self._transaction.misuse(call)
        if number not in (None, self.number):
            name = self._transaction.identity.transactional_id
            raise TransactionAborted(
                f"transactional.id {name}: {call} waited until its transaction had ended"
            )

    async def end(self) -> None:
        """Abort an open transaction, before the producer closes; wait for an end in progress."""
        try:
            if self.can_abort:
                await self.abort()
            elif self._ending is not None:
                await self._wait(self._ending.done, "close")
        except (TransactionError, ClientError):
            # The coordinator aborts it after transaction.timeout.ms, unless it has committed.
            pass

    # ---- the sender's calls

    def note_batches(self) -> None:
        """Take note of partitions with batches in queues, and of the end of all batches."""
        transaction = self._transaction
        queued = frozenset(self._accumulator.queued_partitions)
        new = queued - transaction.added - transaction.adding - transaction.waiting
        if new:
            self._handle(on.PartitionsUsed(new))
        is_wanted = transaction.is_ending and not transaction.are_batches_done
        if is_wanted and self._accumulator.is_idle:
            self._handle(on.BatchesDone())

    def sendable(
        self, nodes: Mapping[int, Sequence[TopicPartition]]
    ) -> Mapping[int, Sequence[TopicPartition]]:
        """Leave out the partitions that do not belong to the transaction yet."""
        added = self._transaction.added
        by_node = {node: [p for p in queued if p in added] for node, queued in nodes.items()}
        return {node: partitions for node, partitions in by_node.items() if partitions}

    @property
    def drops_batches(self) -> bool:
        """True if no batch is sent, or sent again."""
        return self._transaction.drops_batches

    def drop_error(self) -> Exception:
        """Return the error of a batch that is not sent again."""
        failure = self._transaction.failure
        assert failure is not None, "batches are dropped for a reason"
        return failure.error()

    def batch_failed(self, batch: Batch, error: Exception) -> None:
        """Take note of a batch that was given up."""
        partitions = frozenset({batch.partition})
        self._handle(on.BatchFailed(str(error), batch.last_error, batch.may_be_written, partitions))

    # ---- the task

    async def run(self) -> None:
        """Send requests until cancelled."""
        while True:
            await self._has_next.wait()
            self._has_next.clear()
            work = self._next
            self._next = None

            if isinstance(work, do.Pause):
                await asyncio.sleep(work.ms / 1000)
                self._handle(on.PauseOver())
            elif isinstance(work, do.Gather):
                await self._gather()
                self._handle(on.PauseOver())
            elif work is not None:
                self._handle(await self._ask(work.request))

    async def _gather(self) -> None:
        """Wait until no further partition has been used for a few turns of the loop."""
        waiting = self._transaction.waiting
        seen = -1
        while seen < len(waiting) < MOST_GATHERED:
            seen = len(waiting)
            for _ in range(GATHER_TURNS):
                await asyncio.sleep(0)

    def close(self) -> None:
        """Do nothing more: the producer is closed. All waits fail."""
        self._closed = True
        for wait in self._waits():
            wait.set_exception(ProducerClosed("the producer was closed meanwhile"))
            wait.exception()  # mark as seen: its caller may have stopped waiting

    async def _ask(self, request: Request) -> on.Event:
        """Send a request to its coordinator, once, for as long as that coordinates."""
        identity = self._transaction.identity
        key_type, key = coordinator_key(request, identity.transactional_id)
        cluster = self._cluster
        self._endpoint = None
        try:
            endpoint = self._endpoint = await cluster.find_coordinator(key, key_type)
            connection = await cluster.while_it_coordinates(
                (key_type, key), endpoint, partial(cluster.connection, endpoint, PURPOSE)
            )
        except BrokerError as refusal:
            return on.Responded(request, {None: refusal.code}, refusal.detail)
        except AuthenticationFailed as refusal:
            return on.Responded(request, {None: refusal.code}, str(refusal))
        except UnsupportedApi as refusal:
            return self._unsupported(request, str(refusal))
        except ClientError as failure:
            return on.NotSent(request, str(failure))

        # A broker that would leave the member out would fence nobody.
        if isinstance(request, CommitOffsets) and request.group.generation_id >= 0:
            _, newest = connection.versions.get(ApiKey.TXN_OFFSET_COMMIT, (0, -1))
            if 0 <= newest < FIRST_VERSION_OF_MEMBERS:
                return self._unsupported(
                    request,
                    f"{connection.host}:{connection.port} cannot check the consumer's generation "
                    "(KIP-447, Kafka 2.5 and later); ConsumerGroupMetadata with the group alone "
                    "needs no check",
                )

        try:
            response = await cluster.while_it_coordinates(
                (key_type, key), endpoint, partial(connection.call, encode(request, identity))
            )
        except UnsupportedApi as refusal:
            return self._unsupported(request, f"{refusal}; Kafka 0.11 and later has transactions")
        except ConnectionFailed as failure:
            return on.Responded(request, {None: ErrorCode.NETWORK_EXCEPTION}, str(failure))
        except WireError as invalid:
            # Text that has no UTF-8 form, or is too long for the version.
            return on.Responded(request, {None: ErrorCode.INVALID_REQUEST}, str(invalid))
        return self._responded(request, response, connection)

    def _responded(self, request: Request, response: Any, connection: Connection) -> on.Event:
        codes = read_codes(request, response)
        if not isinstance(request, Initialize):
            return on.Responded(request, codes)

        version = connection.version_of(ApiKey.INIT_PRODUCER_ID)
        return on.Responded(
            request,
            codes,
            producer_id=response.producer_id,
            producer_epoch=response.producer_epoch,
            can_renew=version >= FIRST_VERSION_OF_RENEWALS,
        )

    def _unsupported(self, request: Request, detail: str) -> on.Event:
        return on.Responded(request, {None: ErrorCode.UNSUPPORTED_VERSION}, detail)

    # ---- effects

    def _handle(self, event: on.Event) -> None:
        effects = decide(self._transaction, event)

        # Records are taken while the transaction is open, and leave at once when it ends.
        accumulator = self._accumulator
        accumulator.is_open = self.is_open and not accumulator.closed
        if self._is_hurrying != self._transaction.is_ending:
            self._is_hurrying = self._transaction.is_ending
            accumulator.hurrying += 1 if self._is_hurrying else -1

        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: do.Effect) -> None:
        match effect:
            case do.Send() | do.Pause() | do.Gather():
                assert self._next is None, "requests go one at a time"
                self._next = effect
                self._has_next.set()
            case do.LookUp():
                name = self._transaction.identity.transactional_id
                key_type, key = coordinator_key(effect.request, name)
                # Not one that was found meanwhile.
                self._cluster.forget_coordinator(key, key_type, endpoint=self._endpoint)
                # The broker that named it may be behind the others.
                self._cluster.ask_another()
            case do.UseNumbers():
                self.numbers.renew(effect.producer_id, effect.producer_epoch)
            case do.SendBatches():
                self._wake()
            case do.Initialized():
                assert self._initializing is not None
                _settle(self._initializing)
            case do.OffsetsCommitted():
                _settle(self._offsets.pop(0))
            case do.Ended():
                assert self._ending is not None
                _settle(self._ending.done)
            case do.Fail():
                self._fail(effect.failure)

    def _fail(self, failure: Failure) -> None:
        for wait in self._waits():
            # An abort that has just begun goes on, unless the producer has failed.
            is_abort = self._ending is not None and wait is self._ending.done
            if is_abort and self._transaction.phase is Phase.ABORTING:
                continue
            wait.set_exception(failure.error())
            wait.exception()  # mark as seen: its caller may have stopped waiting
        self._offsets.clear()

        # What was in flight before may be written.
        partitions = self._drop_queued(failure.error)
        if partitions:
            self._handle(on.BatchFailed(failure.text, ErrorCode.NONE, True, partitions))

    # ---- waits

    def _check(self, phase: Phase, call: str) -> None:
        """Raise the error of a call that may not enter a phase now."""
        if self._closed:
            raise ProducerClosed("the producer is closed")
        refusal = self._transaction.refusal(phase, call)
        if refusal is not None:
            raise refusal

    def _begin_ending(self, *, commit: bool) -> _Ending:
        ending = self._ending = _Ending(commit, self._new_wait())
        self._handle(on.EndAsked(commit))
        return ending

    def _new_wait(self) -> Done:
        return asyncio.get_running_loop().create_future()

    def _waits(self) -> list[Done]:
        """Return all waits of the application that have no result."""
        waits = [*self._offsets]
        if self._initializing is not None:
            waits.append(self._initializing)
        if self._ending is not None:
            waits.append(self._ending.done)
        return [wait for wait in waits if not wait.done()]

    async def _wait(self, done: Done, call: str) -> None:
        """Wait for up to `max.block.ms`. Raises DeadlineExceeded, and the failure of the wait."""
        # The wait belongs to all callers, and outlasts one that is cancelled or late.
        await asyncio.wait([done], timeout=self._max_block_ms / 1000)
        if not done.done():
            late = f"{call} was not finished within max.block.ms ({self._max_block_ms})"
            refusal = self._transaction.last_refusal
            raise DeadlineExceeded(f"{late}: {refusal}" if refusal else late)
        error = done.exception()
        if error is not None:
            raise error


def _settle(wait: Done) -> None:
    if not wait.done():
        wait.set_result(None)
