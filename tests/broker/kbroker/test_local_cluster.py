"""`kbroker dev` makes settings, claims ports and locks its directory before it starts."""

import os
import socket
from pathlib import Path

import pytest

from broker.kbroker.local_cluster import (
    HOST,
    LocalClusterError,
    broker_properties,
    claim_ports,
    hold_directory,
)
from protocol.settings import format_properties, parse_properties


@pytest.mark.parametrize(("brokers", "replicas"), [(1, "1"), (2, "2"), (5, "3")])
def test_a_development_cluster_keeps_up_to_three_replicas_of_offsets(
    brokers: int, replicas: str
) -> None:
    properties = broker_properties(1, 9093, Path("/d/broker-1"), "z:2181", brokers, {})
    assert properties["offsets.topic.replication.factor"] == replicas
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert properties["log.dirs"] == "/d/broker-1"


def test_what_the_user_set_wins() -> None:
    overrides = {"offsets.topic.replication.factor": "2", "num.partitions": "4"}
    properties = broker_properties(0, 9092, Path("/d"), "z:2181", 1, overrides)
    assert overrides.items() <= properties.items()


def test_properties_read_back_as_they_were() -> None:
    properties = {"a.b": "C:\\logs", "c": "x=y:z", "d": "#1"}
    assert parse_properties(format_properties(properties)) == properties


def test_free_ports_are_all_different() -> None:
    assert len(set(claim_ports(0, 5))) == 5


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError, match=f"{HOST}:{port}") as refused:
            claim_ports(port, 1)
        assert f"by process {os.getpid()} (" in str(refused.value)
        assert "stop it, or take another port" in str(refused.value)


def test_a_directory_can_be_held_again_after_it_was_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_directory(tmp_path / "data"):
            pass


def test_a_directory_cannot_be_held_twice(tmp_path: Path) -> None:
    with (
        hold_directory(tmp_path),
        pytest.raises(LocalClusterError, match="in use"),
        hold_directory(tmp_path),
    ):
        pass
