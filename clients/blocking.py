"""Blocking twins of the asyncio clients, under the same names.

A twin runs its asyncio original on an event loop in a background thread, and blocks the caller
until each call is done. Methods, arguments, results and exceptions are the original's:

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        future = producer.send("flights", b"...")       # a concurrent.futures.Future
        metadata = future.result(timeout=30)

Results are converted, also inside lists and dicts: an asyncio future becomes a
`concurrent.futures.Future`, an asynchronous iterator an iterator. Any thread, and several threads,
may use a twin; a stream only one at a time. Every switch between threads costs time, so streams
hand over a turn of messages at once, and `send` waits only where the original would.

`close` may be called while other threads iterate and call. Iterations end, and other calls raise
ClientClosed, then and later. A rebalance listener is called in a thread of its own, so that it may
call its connector.
"""

import asyncio
import atexit
import concurrent.futures
import inspect
import multiprocessing
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial, wraps
from multiprocessing.util import Finalize
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, get_args, get_origin

from clients.admin import Admin as AsyncAdmin
from clients.arguments import check_timeout
from clients.errors import ClientClosed, ProducerClosed, StreamInUse
from clients.high_level.connector import ConsumerConnector as AsyncConsumerConnector
from clients.high_level.delivery import ConsumerRebalanceListener
from clients.high_level.streams import MessageAndMetadata, MessageStream
from clients.loop_thread import LoopThread, is_any_loop_thread
from clients.producer.encoded_record import Header
from clients.producer.handover import Handover
from clients.producer.producer import Producer as AsyncProducer
from clients.simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from protocol.frozen import frozen

T = TypeVar("T")

AT_EXIT_MS = 5_000
"""Longest time in which a producer that was not closed sends its records when the process ends."""

_IN_LISTENER: ContextVar[bool] = ContextVar("in_listener", default=False)


class Blocking:
    """A twin of one asyncio object, of a class that `twin` made."""

    closed_error: type[ClientClosed] = ClientClosed
    """What its calls raise after the close."""

    def __init__(self, original: Any, loop: LoopThread) -> None:
        self._original = original
        self._loop = loop
        self._lock = threading.Lock()
        self._closing = 0
        """The number of threads that wait for the close."""

    def __dir__(self) -> list[str]:
        # With the plain attributes, which are the original's.
        plain = (name for name in vars(self._original) if not name.startswith("_"))
        return sorted({*super().__dir__(), *plain})

    def __getattr__(self, name: str) -> Any:
        # Methods and properties are the class's: what is left is a plain attribute.
        return getattr(self._original, name)

    def _property(self, name: str) -> Any:
        self._loop.refuse_own_thread()

        async def read() -> Any:
            return _convert(getattr(self._original, name), self._loop)

        try:
            return self._loop.call(read())  # on the loop nothing changes during the read
        except ClientClosed:
            # The loop has ended, so nothing changes during this read either.
            return _convert(getattr(self._original, name), self._loop)

    def __enter__(self) -> Self:
        try:
            self._loop.call(self._original.__aenter__())
        except BaseException:
            # A `with` that has not begun has no end.
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(lambda: self._original.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Close the original and end its thread.

        Any thread may call this, also repeatedly; all wait for the same end.
        """
        self._end(self._original.close)

    def _end(self, closing: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        # What a child closes is the parent's, which goes on with it (fault users-14).
        if not self._loop.process.is_this:
            return

        self._loop.refuse_own_thread()
        with self._lock:
            self._closing += 1
        try:
            self._loop.call(closing())
        except ClientClosed:
            # Another call has closed it, which is all that was asked for.
            self._leave()
        except Exception:
            self._leave()
            raise
        except BaseException:
            # What was sent counts, and the caller may close again (fault scale-C1).
            self._go_on_without_caller(closing)
            raise
        else:
            self._leave()

    def _go_on_without_caller(self, closing: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Close, and end the loop, beside a caller that was interrupted: nobody else may."""

        def end_loop(_: object) -> None:
            # In a thread, since the loop's own cannot wait for its end.
            threading.Thread(target=self._leave, daemon=True).start()

        try:
            going_on = self._loop.start(closing())
        except ClientClosed:
            self._leave()
        else:
            going_on.add_done_callback(end_loop)

    def _leave(self) -> None:
        """End the loop, unless another thread still waits for the close."""
        with self._lock:
            self._closing -= 1
            is_last = self._closing == 0

        # Who ends first must not stop what another one waits for (fault scale-C1).
        if not is_last:
            return
        self._loop.stop()
        self._ended()

    def _ended(self) -> None:
        """Do what is left when the loop has ended."""

    def _bound(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*arguments: Any, **keywords: Any) -> Any:
            result = method(*arguments, **keywords)
            return _convert(await result if inspect.iscoroutine(result) else result, self._loop)

        def blocking(*arguments: Any, **keywords: Any) -> Any:
            self._loop.refuse_own_thread()
            return self._loop.call(run(*arguments, **keywords))

        return blocking


class BlockingProducer(Blocking):
    """A twin whose `send` hands records to the loop, and waits where the original would."""

    # Programs catch what the original raises (fault strangers-155).
    closed_error = ProducerClosed

    def __init__(self, original: AsyncProducer, loop: LoopThread) -> None:
        super().__init__(original, loop)
        self._handover = Handover(original, loop.start)
        if multiprocessing.parent_process() is not None:
            # A forked child ends without what `atexit` has (fault strangers-136).
            Finalize(None, _close_at_exit, exitpriority=0)
        _unclosed.add(self)

    def send(
        self,
        topic: Any,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Any:
        """Buffer a record and return the future of its delivery; for ProducerData a list of them.

        Waits only for the topic's metadata and for room in the buffer, `max.block.ms` in all.
        Raises as `kgroup.Producer.send`; later failures of the record are in its future. In a
        callback of such a future it does not wait: the record waits, beyond `buffer.memory` if need
        be, and its future fails if that takes too long.
        """
        # Records are handed over without a switch of threads; lists of messages go to the loop.
        if isinstance(topic, str) and self._original._old is None:
            record = (topic, value, key, partition, headers, timestamp_ms)
            self._loop.process.check()
            # Two producers would wait for each other (fault strangers-163, was: False).
            is_callback = is_any_loop_thread()
            return self._handover.send(*record, may_wait=not is_callback)

        options = {"partition": partition, "headers": headers, "timestamp_ms": timestamp_ms}
        return self._bound(self._original.send)(topic, value, key=key, **options)

    def send_and_wait(self, topic: str, value: Any = None, **options: Any) -> Any:
        """Send a record and wait until it is acknowledged. Raises as `send` and its future."""
        self._loop.refuse_own_thread()
        return self.send(topic, value, **options).result()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context manager, as the original does. Raises as the original."""
        original: AsyncProducer = self._original
        manager = original.transaction()
        return _BlockingTransaction(self._bound(manager.__aenter__), self._bound(manager.__aexit__))

    def close(self, timeout_ms: int | None = None) -> None:
        """Close as the original does. Records that were handed over go out before."""
        # A close that failed would end the loop, and the records with it (fault strangers-175).
        check_timeout(timeout_ms)
        self._end(partial(self._close_original, timeout_ms))

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _close_original(self, timeout_ms: int | None) -> None:
        now = asyncio.get_running_loop().time
        begun_s = now()
        timeout_s = None
        # The buffer may have no room for them, for longer than the caller waits
        # (fault scale-C1).
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        await asyncio.wait(
            [asyncio.ensure_future(self._handover.wait_until_taken())], timeout=timeout_s
        )
        if timeout_ms is not None:
            timeout_ms = max(0, timeout_ms - round((now() - begun_s) * 1000))
        await self._original.close(timeout_ms)

    def _ended(self) -> None:
        _unclosed.discard(self)
        self._handover.close()

    def _bound(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def after_sent_records(*arguments: Any, **keywords: Any) -> Any:
            # A flush must see the records that `send` handed over before it.
            await self._handover.wait_until_buffered()
            result = method(*arguments, **keywords)
            return await result if inspect.iscoroutine(result) else result

        return super()._bound(after_sent_records)


_unclosed: set[BlockingProducer] = set()
"""The producers that were not closed yet. Each has a thread, which ends with the process."""


@atexit.register
def _close_at_exit() -> None:
    """Send what is left at the end of the process, for at most AT_EXIT_MS each."""
    for producer in list(_unclosed):
        # Those of a child are its parent's.
        if producer._loop.process.is_this:
            warnings.warn("a blocking Producer was not closed", ResourceWarning, stacklevel=1)
            # Else they would be lost without a word (fault users-13).
            producer.close(AT_EXIT_MS)


@frozen
class _BlockingTransaction:
    """A transaction as a context manager of the caller's thread."""

    _enter: Callable[[], Any]
    _exit: Callable[..., Any]

    def __enter__(self) -> None:
        self._enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit(kind, error, trace)


class BlockingConnector(Blocking):
    """A twin whose rebalance listener may call it."""

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener of rebalances, which is called in another thread than the loop's."""
        set_listener = self._bound(self._original.set_consumer_rebalance_listener)
        set_listener(_OffTheLoop(listener))

    def _end(self, closing: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super_end = super()._end
        if not _IN_LISTENER.get():
            super_end(closing)
        else:  # the shutdown waits for the listener, so the listener must not wait for it
            threading.Thread(target=super_end, args=[closing], daemon=True).start()


class _OffTheLoop:
    """A rebalance listener that is called in another thread while the loop goes on."""

    def __init__(self, listener: ConsumerRebalanceListener) -> None:
        self._listener = listener

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        # It has the methods that the listener has.
        return partial(self._call, getattr(self._listener, name))

    async def _call(self, method: Callable[..., Any], *arguments: Any) -> None:
        def call_in_thread() -> Any:
            # The thread has a copy of the context: the flag holds for the listener's calls alone.
            _IN_LISTENER.set(True)
            return method(*arguments)

        result = await asyncio.to_thread(call_in_thread)
        if inspect.isawaitable(result):
            await result


class BlockingIterator(Generic[T]):
    """An asynchronous iterator as an iterator that blocks for each item."""

    def __init__(self, original: AsyncIterator[T], loop: LoopThread) -> None:
        self._original = original
        self._loop = loop

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        async def step() -> tuple[bool, Any]:
            # StopAsyncIteration cannot leave a coroutine's task as itself.
            try:
                return True, await anext(self._original)
            except StopAsyncIteration:
                return False, None

        try:
            has_item, item = self._loop.call(step())
        except ClientClosed:
            raise StopIteration from None

        if not has_item:
            raise StopIteration
        result: T = item
        return result


class BlockingStream:
    """A stream of messages.

    A turn of messages is taken in the iterating thread, without a call to the loop for each. Asking
    for the next message counts the last one as consumed, as in the original.
    """

    def __init__(self, original: MessageStream, loop: LoopThread) -> None:
        self._original = original
        self._loop = loop
        self._in_use = threading.Lock()

    def __iter__(self) -> Iterator[MessageAndMetadata]:
        return self

    def __next__(self) -> MessageAndMetadata:
        """Return the next message. Raises as the original; StreamInUse if another thread waits."""
        # The messages of the turn that was begun are the parent's.
        self._loop.process.check()
        if not self._in_use.acquire(blocking=False):
            raise StreamInUse("another thread asks for the next message of this stream")

        try:
            # The turn that was begun has messages: no switch to the loop.
            for message in self._original.turn:
                return message

            # The next turn waits on the loop.
            while self._loop.call(self._original.begin_turn()):
                for message in self._original.turn:
                    return message
        except ClientClosed:
            pass
        finally:
            self._in_use.release()
        raise StopIteration

    def batches(self) -> Iterator[list[MessageAndMetadata]]:
        """Iterate over lists of messages, as the original's `batches`."""
        return BlockingBatches(self)

    def next_batch(self) -> list[MessageAndMetadata] | None:
        """Return the next list; None if the stream has ended. Raises as `__next__`."""
        # Made on the loop, where the original refuses a second thread that waits.
        try:
            return self._loop.call(self._original.next_batch())
        except ClientClosed:
            return None


class BlockingBatches:
    """The messages of a blocking stream, as an iterator of lists.

    Errors do not end it, which they would with a generator.
    """

    def __init__(self, stream: BlockingStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[list[MessageAndMetadata]]:
        return self

    def __next__(self) -> list[MessageAndMetadata]:
        """Return the next list. Raises as the stream."""
        batch = self._stream.next_batch()
        if batch is None:
            raise StopIteration
        return batch


def _blocking_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a twin's method: futures are those of threads."""
    signature = inspect.signature(function)
    returned = signature.return_annotation
    if get_origin(returned) is asyncio.Future:
        future: Any = concurrent.futures.Future
        return signature.replace(return_annotation=future[get_args(returned)])
    return signature


def twin(original: type, kind: type[Blocking] = Blocking) -> Any:
    """Make the blocking twin of an asyncio client class; its class methods make twins too."""

    def start(work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Any, LoopThread]:
        # The original is made on its loop, as its constructor asks for the running one.
        loop = LoopThread(f"blocking-{original.__name__}", kind.closed_error)
        try:
            return loop.call(work()), loop
        except BaseException:
            # A thread that nobody could stop must not be left behind.
            loop.stop()
            raise

    class Twin(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            async def make() -> Any:
                return original(*arguments, **keywords)

            super().__init__(*start(make))

    def make_method(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(self: Blocking, *arguments: Any, **keywords: Any) -> Any:
            method = self._bound(partial(function, self._original))
            return method(*arguments, **keywords)

        call.__signature__ = _blocking_signature(function)  # type: ignore[attr-defined]
        return call

    def make_maker(method: Any) -> Any:
        @wraps(method.__func__)
        def make(cls: type[Blocking], *arguments: Any, **keywords: Any) -> Blocking:
            # Without `__init__`, which would make another original.
            blocking_client = cls.__new__(cls)
            kind.__init__(blocking_client, *start(lambda: method(*arguments, **keywords)))
            return blocking_client

        return classmethod(make)

    Twin.__init__ = wraps(vars(original)["__init__"])(Twin.__init__)  # type: ignore[method-assign]
    Twin.__name__ = Twin.__qualname__ = original.__name__
    Twin.__doc__ = f"A blocking `kgroup.{original.__name__}`, which says more."

    # Methods of its own, which `help` and completion find.
    for name, attribute in inspect.getmembers(original):
        if inspect.ismethod(attribute):
            setattr(Twin, name, make_maker(attribute))
        elif inspect.isfunction(attribute) and attribute is getattr(original, "close", None):
            setattr(Twin, name, kind.close)  # by all names of it
        elif name.startswith("_") or hasattr(kind, name):
            continue
        elif inspect.isfunction(attribute):
            setattr(Twin, name, make_method(attribute))
        elif isinstance(attribute, property):
            setattr(Twin, name, property(partial(kind._property, name=name), doc=attribute.__doc__))
    return Twin


Producer = twin(AsyncProducer, BlockingProducer)
"""A blocking `kgroup.Producer`."""

SimpleConsumer = twin(AsyncSimpleConsumer)
"""A blocking `kgroup.SimpleConsumer`."""

Admin = twin(AsyncAdmin)
"""A blocking `kgroup.Admin`."""

ConsumerConnector = twin(AsyncConsumerConnector, BlockingConnector)
"""A blocking `kgroup.ConsumerConnector`."""


def _convert(value: Any, loop: LoopThread) -> Any:
    """Convert a result for a caller in another thread. Runs on the loop."""
    if isinstance(value, asyncio.Future):
        return _concurrent(value)

    # Streams are asynchronous iterators too, so they come first.
    if isinstance(value, MessageStream):
        return loop.twins.setdefault(value, BlockingStream(value, loop))
    if isinstance(value, AsyncIterator):
        return BlockingIterator(value, loop)
    if type(value) is list:
        return [_convert(item, loop) for item in value]
    if type(value) is dict:
        return {key: _convert(item, loop) for key, item in value.items()}
    return value


def _concurrent(future: asyncio.Future[T]) -> concurrent.futures.Future[T]:
    concurrent_future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def settle(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            concurrent_future.cancel()
        elif concurrent_future.set_running_or_notify_cancel():
            # Unless the caller has cancelled its future: a result would raise then.
            error = done.exception()
            if error is not None:
                concurrent_future.set_exception(error)
            else:
                concurrent_future.set_result(done.result())

    future.add_done_callback(settle)
    return concurrent_future
