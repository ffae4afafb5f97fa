"""Blocking twins of the asyncio clients, under the same names.

A twin runs its asyncio original on the event loop of a background thread of its own, and blocks
the caller until each call is done. Methods, arguments, results and exceptions are the original's:

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        future = producer.send("flights", b"...")       # a concurrent.futures.Future
        metadata = future.result(timeout=30)

What a call returns is turned the same way, also inside lists and dicts: an asyncio future becomes
a `concurrent.futures.Future`, an asynchronous iterator an iterator. Twins may be used from any
thread, and from several.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from clients.admin import Admin as AsyncAdmin
from clients.high_level.connector import ConsumerConnector as AsyncConsumerConnector
from clients.producer.producer import Producer as AsyncProducer
from clients.simple_consumer import SimpleConsumer as AsyncSimpleConsumer

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread until `stop`."""

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result.

        An exception in the waiting thread (Ctrl-C above all) cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def stop(self) -> None:
        """End the loop, what still runs on it, and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._runner.close()


class Blocking:
    """A twin of one asyncio object; made by a class that `twin` made."""

    def __init__(self, original: Any, loop: LoopThread) -> None:
        self._original = original
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(type(self._original), name, None), property):
            return self._loop.call(self._read(name))  # while nothing changes what it looks at
        attribute = getattr(self._original, name)
        return self._bound(attribute) if callable(attribute) else attribute

    async def _read(self, name: str) -> Any:
        return getattr(self._original, name)

    def __enter__(self) -> Self:
        self._loop.call(self._original.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._loop.call(self._original.__aexit__(kind, error, trace))
        finally:
            self._loop.stop()

    def close(self, *arguments: Any, **keywords: Any) -> None:
        """Close the original and end its thread."""
        try:
            self._loop.call(self._original.close(*arguments, **keywords))
        finally:
            self._loop.stop()

    def _bound(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*arguments: Any, **keywords: Any) -> Any:
            result = method(*arguments, **keywords)
            return _turned(await result if inspect.iscoroutine(result) else result, self._loop)

        def blocking(*arguments: Any, **keywords: Any) -> Any:
            return self._loop.call(run(*arguments, **keywords))

        blocking.__doc__ = method.__doc__
        blocking.__name__ = getattr(method, "__name__", "method")
        return blocking


class BlockingIterator(Generic[T]):
    """An asynchronous iterator, blocking until each item is there."""

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

        there, item = self._loop.call(step())
        if not there:
            raise StopIteration
        kept: T = item
        return kept


def twin(original: type) -> Any:
    """Make the blocking twin of an asyncio client class; its class methods make twins too."""

    def start(work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Any, LoopThread]:
        loop = LoopThread(f"blocking-{original.__name__}")
        try:
            return loop.call(work()), loop
        except BaseException:
            loop.stop()
            raise

    class Twin(Blocking):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            async def make() -> Any:
                return original(*arguments, **keywords)

            super().__init__(*start(make))

    def maker(method: Callable[..., Any]) -> Callable[..., Blocking]:
        def make(*arguments: Any, **keywords: Any) -> Blocking:
            made = Twin.__new__(Twin)
            Blocking.__init__(made, *start(lambda: method(*arguments, **keywords)))
            return made

        make.__doc__ = method.__doc__
        return make

    Twin.__name__ = Twin.__qualname__ = original.__name__
    Twin.__doc__ = f"Blocking twin of {original.__module__}.{original.__qualname__}."
    for name, method in inspect.getmembers(original, inspect.ismethod):
        setattr(Twin, name, staticmethod(maker(method)))
    return Twin


Producer = twin(AsyncProducer)
SimpleConsumer = twin(AsyncSimpleConsumer)
Admin = twin(AsyncAdmin)
ConsumerConnector = twin(AsyncConsumerConnector)


def _turned(value: Any, loop: LoopThread) -> Any:
    """A result as a caller on another thread can use it. Runs on the loop."""
    if isinstance(value, asyncio.Future):
        return _concurrent(value)
    if isinstance(value, AsyncIterator):
        return BlockingIterator(value, loop)
    if type(value) is list:
        return [_turned(item, loop) for item in value]
    if type(value) is dict:
        return {key: _turned(item, loop) for key, item in value.items()}
    return value


def _concurrent(future: asyncio.Future[T]) -> concurrent.futures.Future[T]:
    turned: concurrent.futures.Future[T] = concurrent.futures.Future()

    def settle(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            turned.cancel()
        elif turned.set_running_or_notify_cancel():
            error = done.exception()
            if error is not None:
                turned.set_exception(error)
            else:
                turned.set_result(done.result())

    future.add_done_callback(settle)
    return turned
