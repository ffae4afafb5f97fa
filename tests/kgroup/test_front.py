"""The front package: its names are the clients' own, and nothing is loaded before it is used."""

import ast
import builtins
import collections.abc
import importlib
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import clients.admin
import clients.blocking
import clients.errors
import clients.serializers
import kgroup
from clients.high_level.connector import ConsumerConnector
from clients.high_level.delivery import ConsumerRebalanceListener
from clients.high_level.seeking import Timestamp
from clients.high_level.streams import MessageAndMetadata
from clients.producer.producer import Producer
from clients.simple_consumer import SimpleConsumer
from groups.consumer.member_failed import MemberFailed
from groups.zookeeper.filters import Blacklist, Whitelist
from offsets.store_errors import CommitFailed, OffsetFetchFailed
from protocol.errors import ErrorCode
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


def run(program: str) -> str:
    """Run a program in a new interpreter; return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    return finished.stdout.strip()


def test_the_front_has_the_clients_and_their_values() -> None:
    assert kgroup.Admin is clients.admin.Admin
    assert kgroup.ConsumerConnector is ConsumerConnector
    assert kgroup.OffsetAndMetadata is OffsetAndMetadata
    assert kgroup.Producer is Producer
    assert kgroup.SimpleConsumer is SimpleConsumer
    assert kgroup.TopicPartition is TopicPartition


def test_the_front_has_what_a_member_of_a_group_takes_and_gets() -> None:
    assert kgroup.Blacklist is Blacklist
    assert kgroup.ConsumerRebalanceListener is ConsumerRebalanceListener
    assert (kgroup.EARLIEST_TIME, kgroup.LATEST_TIME) == (EARLIEST_TIME, LATEST_TIME)
    assert kgroup.MessageAndMetadata is MessageAndMetadata
    assert kgroup.Timestamp is Timestamp
    assert kgroup.Whitelist is Whitelist


@pytest.mark.parametrize("errors", [CommitFailed, MemberFailed, OffsetFetchFailed])
def test_what_a_member_raises_can_be_caught_by_its_name_in_errors(errors: type) -> None:
    assert getattr(kgroup.errors, errors.__name__) is errors


def test_every_name_it_lists_can_be_had() -> None:
    assert set(kgroup.__all__) <= set(dir(kgroup))
    for name in kgroup.__all__:
        assert getattr(kgroup, name) is not None


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'kgroup' has no attribute 'Consumer'"):
        kgroup.Consumer  # noqa: B018


def test_all_that_a_client_raises_is_in_errors() -> None:
    raised = {
        name for name in clients.errors.__all__ if isinstance(getattr(clients.errors, name), type)
    }
    assert set(kgroup.errors.__all__) == raised | {"ErrorCode"}
    assert kgroup.errors.ErrorCode is ErrorCode
    for name in raised:
        assert getattr(kgroup.errors, name) is getattr(clients.errors, name)
        assert issubclass(getattr(kgroup.errors, name), kgroup.errors.KgroupError)


def test_the_twins_have_the_names_of_the_clients() -> None:
    for name in ("Admin", "ConsumerConnector", "Producer", "SimpleConsumer"):
        assert getattr(kgroup.blocking, name) is getattr(clients.blocking, name)


def test_admin_and_serializers_leave_nothing_out() -> None:
    assert set(kgroup.admin.__all__) >= set(clients.admin.__all__)
    codecs = {name for name in vars(clients.serializers) if name.endswith(("_encoder", "_decoder"))}
    assert set(kgroup.serializers.__all__) == codecs | {"Decoder", "Encoder"}


INSIDE = {
    "Delivery": "of `send_batch`",
    "BatchBuilder": "of `send_batch`",
    "Sequences": "of `use_numbers`",
    "FindBrokers": "for our own consumers",
    "ZkSession": "for tests, which have another one",
    "Sending": "a coroutine",
    "AbstractAsyncContextManager": "contextlib's",
    "asyncio": "Python's",
    "Header": "a tuple of two",
    "Messages": "ProducerData, KeyedMessage or several",
    "Place": "an int or a Timestamp",
}
"""Names in annotations that nobody has to write, and what they are."""


@pytest.mark.fault("users-7", needs_no_remedy="names are listed")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("clients.admin.admin", "Admin"),
        ("clients.high_level.connector", "ConsumerConnector"),
        ("clients.producer.producer", "Producer"),
        ("clients.simple_consumer", "SimpleConsumer"),
    ],
)
def test_every_class_of_an_annotation_can_be_imported(module: str, name: str) -> None:
    named = names_in_annotations(module, name)
    fronts = (kgroup, kgroup.admin, kgroup.errors, kgroup.serializers)
    public = {public for front in fronts for public in front.__all__}
    pythons = {*dir(builtins), *dir(typing), *dir(collections.abc)}
    assert len(named) > 5
    assert named - public - pythons - INSIDE.keys() == set()


def names_in_annotations(module: str, name: str) -> set[str]:
    """Return the names in the annotations of a class's public methods."""
    tree = ast.parse(Path(str(importlib.import_module(module).__file__)).read_text("utf-8"))
    (client,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    methods = [
        node
        for node in client.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.name == "__init__" or not node.name.startswith("_"))
    ]
    annotations = [
        annotation
        for method in methods
        for annotation in (
            method.returns,
            *(
                argument.annotation
                for argument in ast.walk(method.args)
                if isinstance(argument, ast.arg)
            ),
        )
        if annotation is not None
    ]
    nodes = [node for annotation in annotations for node in ast.walk(annotation)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def test_the_import_alone_loads_no_client() -> None:
    loaded = run("import sys, kgroup; print([m for m in sys.modules if m.startswith('clients')])")
    assert loaded == "[]"


def test_a_client_loads_no_spark_and_no_command() -> None:
    program = (
        "import sys; from kgroup import Producer, errors\n"
        "print([m for m in ('pyspark', 'click', 'spark_connector') if m in sys.modules])"
    )
    assert run(program) == "[]"


def test_the_spark_source_is_the_connectors() -> None:
    pytest.importorskip("pyspark")
    from spark_connector.source import KgroupDataSource

    assert kgroup.spark.KgroupDataSource is KgroupDataSource
