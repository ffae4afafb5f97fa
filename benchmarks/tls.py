"""Measure TLS: produce of 64 KB, fetch of 1 MB, and full handshakes.

Both brokers have one key (EC, P-256) and speak TLS 1.3. The driver is one connection of Python's
`ssl`, which blocks: it has a core of its own, and encrypts as much as the broker does.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Broker, Side, install
from benchmarks.fetch import FETCH_BYTES, TOPIC_BYTES, encode_fetch, fill
from benchmarks.load import (
    RECEIVE_BUFFER_BYTES,
    STALLED_AFTER_S,
    Address,
    FrameCounter,
    LoadError,
    RequestRing,
)
from benchmarks.produce import COMPILED_AFTER_S, EQUAL, encode_produce, make_batch
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Row, at_least, at_most
from broker.kbroker.local_cluster import HOST

BATCH_BYTES = 64 * 1024
OUTSTANDING = 2
CONNECTING_THREADS = 4


@attrs.frozen
class SecuredBroker:
    """A broker with a listener for TLS beside the plaintext one."""

    broker: Broker
    address: Address
    context: ssl.SSLContext

    def connect(self) -> ssl.SSLSocket:
        """Connect, with a full handshake."""
        plain = socket.create_connection(self.address, timeout=STALLED_AFTER_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(plain, server_hostname=HOST)


def measure(sides: Sequence[Side], directory: Path, rounds: Rounds) -> Iterator[Row]:
    """Yield rows of rates, of the processor time for a gigabyte, and of handshakes."""
    keys = make_keys()
    with contextlib.ExitStack() as stack:
        brokers = [_start(side, directory / f"tls-{i}", keys) for i, side in enumerate(sides)]
        for broker in brokers:
            stack.callback(partial(broker.broker.process.stop, at_once=True))
            # Both shake hands, and a JVM compiles its code, before the first round.
            _produce(broker, COMPILED_AFTER_S)

        rate, cpu = alternate([partial(_produce, broker) for broker in brokers], rounds)
        yield Row("TLS: produce 64 KB, 1 × 2", "MB/s", at_least(0.8), rate)
        yield Row("broker CPU of TLS: produce 64 KB, 1 × 2", "s/GB", at_most(1.0), cpu)

        contestants = [stack.enter_context(_prepare_fetch(broker)) for broker in brokers]
        rate, cpu = alternate(contestants, rounds)
        yield Row("TLS: fetch 1 MB, 1 × 2", "MB/s", at_least(1.0), rate)
        yield Row("broker CPU of TLS: fetch 1 MB, 1 × 2", "s/GB", at_most(1.0), cpu)

        (handshakes,) = alternate([partial(_shake_hands, broker) for broker in brokers], rounds)
        yield Row("TLS handshakes", "1/s", at_least(0.5), handshakes)


def make_keys() -> dict[str, str]:
    """Make an authority and a certificate for HOST; return the settings that have them in PEM."""
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    authority = trustme.CA()
    leaf = authority.issue_cert(HOST)
    # Java reads PKCS#8 only.
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pkcs8.decode(),
        "ssl.keystore.certificate.chain": leaf.cert_chain_pems[0].bytes().decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }


def _start(side: Side, directory: Path, keys: dict[str, str]) -> SecuredBroker:
    one_line = {name: text.replace("\n", "\\n") for name, text in keys.items()}
    place = install(side, directory, directory.name, one_line)
    address = place.add_listener("SSL")
    context = ssl.create_default_context(cadata=keys["ssl.truststore.certificates"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return SecuredBroker(place.start(), address, context)


def _produce(broker: SecuredBroker, seconds: float) -> tuple[float, float]:
    batch, records = make_batch(BATCH_BYTES, EQUAL)
    with broker.broker.create_topic() as topic:
        plan = [encode_produce(topic, batch, 1)]
        responses, _, taken_s, cpu_s = _drive(broker, plan, seconds)
        end = broker.broker.read_end_offset(topic)

    # Each response must stand for a batch in the log.
    if end != responses * records:
        raise LoadError(f"{broker.broker.name} took {responses} batches, but ends at {end}")
    sent_bytes = responses * len(batch)
    return sent_bytes / 1e6 / taken_s, cpu_s / (sent_bytes / 1e9)


@contextlib.contextmanager
def _prepare_fetch(broker: SecuredBroker) -> Iterator[Callable[[float], tuple[float, float]]]:
    with broker.broker.create_topic() as topic:
        end = fill(broker.broker, topic, TOPIC_BYTES)
        step = end * FETCH_BYTES // TOPIC_BYTES
        plan = [encode_fetch(topic, offset) for offset in range(0, end - 2 * step, step)]
        yield partial(_fetch, broker, plan)


def _fetch(broker: SecuredBroker, plan: Sequence[bytes], seconds: float) -> tuple[float, float]:
    responses, received_bytes, taken_s, cpu_s = _drive(broker, plan, seconds)
    if received_bytes < responses * FETCH_BYTES * 0.9:
        raise LoadError(f"{broker.broker.name} responds with less than the limit allows")
    return received_bytes / 1e6 / taken_s, cpu_s / (received_bytes / 1e9)


def _drive(
    broker: SecuredBroker, plan: Sequence[bytes], seconds: float
) -> tuple[int, int, float, float]:
    """Keep OUTSTANDING requests in flight; return responses, their bytes, seconds and CPU."""
    buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    requests, frames = RequestRing(plan, OUTSTANDING), FrameCounter()
    responses = received_bytes = 0
    process = broker.broker.process

    with broker.connect() as connection:
        cpu_s = process.cpu_s
        begins = time.perf_counter()
        connection.sendall(requests.take(OUTSTANDING))
        in_flight = OUTSTANDING
        while in_flight:
            size = connection.recv_into(buffer)
            if not size:
                raise LoadError("the broker closed the connection")
            ended = frames.count(buffer[:size])
            responses += ended
            received_bytes += size
            if ended and time.perf_counter() - begins < seconds:
                connection.sendall(requests.take(ended))
            else:
                in_flight -= ended
        taken_s = time.perf_counter() - begins
        return responses, received_bytes, taken_s, process.cpu_s - cpu_s


def _shake_hands(broker: SecuredBroker, seconds: float) -> tuple[float]:
    """Connect again and again, in several threads; return handshakes a second."""
    counts: list[int] = []
    ends = time.perf_counter() + seconds

    def connect() -> None:
        count = 0
        while time.perf_counter() < ends:
            broker.connect().close()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=connect) for _ in range(CONNECTING_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(counts) < CONNECTING_THREADS:
        raise LoadError(f"{broker.broker.name} does not finish its handshakes")
    return (sum(counts) / seconds,)
