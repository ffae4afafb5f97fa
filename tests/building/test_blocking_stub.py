"""kgroup/blocking.pyi says what `kgroup.blocking` has."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kgroup.blocking
from building.blocking_stub import CLIENTS, STUB, render_stub
from tests.stage.processes import ROOT

PROGRAM = """
from concurrent.futures import Future

from kgroup import RecordMetadata, TopicPartition
from kgroup.blocking import Admin, ConsumerConnector, MessageStream, Producer, SimpleConsumer


def read(stream: MessageStream) -> list[bytes]:
    values = [message.value for message in stream]
    for messages in stream.batches():
        values += [message.value for message in messages]
    return values


with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
    future: Future[RecordMetadata] = producer.send("flights", b"one")
    metadata: RecordMetadata = producer.send_and_wait("flights", b"two")
    print(producer.metrics.record_send_total, metadata.offset)
    with producer.transaction():
        producer.flush()
    producer.close(timeout_ms=10)
with Admin("localhost:9092") as admin:
    topics: list[str] = admin.list_topics()
with ConsumerConnector(group_id="g") as connector:
    streams: dict[str, list[MessageStream]] = connector.create_message_streams({"flights": 1})
    read(streams["flights"][0])
    connector.seek(TopicPartition("flights", 0), 5)
    connector.shutdown()
with SimpleConsumer.for_leader({}, "flights", 0) as consumer:
    print(consumer.host, consumer.so_timeout_ms)
"""

WRONG = """
from kgroup.blocking import Admin, Producer

with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
    producer.snd("t", 3)
    producer.send_and_wait("t", b"v").offset.nothing
with Admin("localhost:9092") as admin:
    admin.list_topics(3)
    admin.no_such_method()
"""

MENDED = pytest.mark.fault("users-6", needs_no_remedy="the stub is the remedy")


def check(directory: Path, program: str) -> str:
    """What mypy --strict says of a user's program."""
    (directory / "program.py").write_text(program)
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", "program.py"],
        cwd=directory,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return checked.stdout


@MENDED
def test_it_is_what_the_clients_have() -> None:
    assert STUB.read_text() == render_stub(), "run python -m building.blocking_stub"


@MENDED
def test_a_type_checker_takes_what_the_twins_can(tmp_path: Path) -> None:
    assert check(tmp_path, PROGRAM) == "Success: no issues found in 1 source file\n"


@MENDED
def test_a_type_checker_refuses_what_they_cannot(tmp_path: Path) -> None:
    said = check(tmp_path, WRONG).splitlines()
    errors = {line.split(": ")[0] for line in said if ": error: " in line}
    assert errors == {f"program.py:{line}" for line in (5, 6, 8, 9)}


@MENDED
def test_it_says_what_is_there_when_a_program_runs() -> None:
    compared = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "kgroup.blocking", "--concise"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (compared.returncode, compared.stdout) == (0, "")


@MENDED
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_completion_and_help_know_the_methods(client: type) -> None:
    twin = getattr(kgroup.blocking, client.__name__)
    methods = inspect.getmembers(client, inspect.isfunction)
    assert len(methods) > 5
    for name, method in methods:
        if not name.startswith("_"):
            assert name in dir(twin)
            assert inspect.getdoc(getattr(twin, name)) or not inspect.getdoc(method)
