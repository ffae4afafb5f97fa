"""Blocking twins of the clients, under the same names.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        future = producer.send("flights", b"...")       # a concurrent.futures.Future
        metadata = future.result(timeout=30)

Methods, arguments, results and exceptions are those of `kgroup.Admin`, `kgroup.ConsumerConnector`,
`kgroup.Producer` and `kgroup.SimpleConsumer`, without `await`: a call blocks until it is done. An
asyncio future becomes a `concurrent.futures.Future`, an asynchronous iterator an iterator. Any
thread, and several threads, may use a twin; a stream only one at a time.

A twin belongs to its process: a forked child gets OtherProcess, and makes one of its own. A
Producer that was not closed when the program ends sends what is left, for at most five seconds.
"""

from clients.blocking import Admin, ConsumerConnector, Producer, SimpleConsumer
from clients.blocking import BlockingStream as MessageStream

__all__ = ["Admin", "ConsumerConnector", "MessageStream", "Producer", "SimpleConsumer"]
