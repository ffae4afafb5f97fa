"""`kbroker configs` chooses a resource, parses settings and shows them."""

import json
from collections.abc import Mapping
from typing import Any

import click
import pytest

from broker.kbroker.configs import Settings, choose_resource, format_resource
from clients.admin.descriptions import ConfigResource
from tests.stage.cluster import DevCluster


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ("a=1", [("a", "1")]),
        ("a=1,b=2", [("a", "1"), ("b", "2")]),
        ("a=[x,y], b = 2 ,c=", [("a", "x,y"), ("b", "2"), ("c", "")]),
        ("a=x=y", [("a", "x=y")]),
    ],
)
def test_a_comma_inside_brackets_belongs_to_the_value(
    typed: str, settings: list[tuple[str, str]]
) -> None:
    assert list(Settings().convert(typed, None, None)) == settings


@pytest.mark.parametrize("typed", ["a", "a=1,b", "=1"])
def test_a_piece_without_name_or_value_is_wrong_usage(typed: str) -> None:
    with pytest.raises(click.UsageError, match="is not key=value"):
        Settings().convert(typed, None, None)


@pytest.mark.parametrize(
    ("options", "resource", "named"),
    [
        ({"topic": "t"}, ConfigResource.topic("t"), "topic t"),
        ({"broker": 0}, ConfigResource.broker(0), "broker 0"),
        (
            {"broker_defaults": True},
            ConfigResource.broker_defaults(),
            "default for brokers in the cluster",
        ),
        ({"entity_type": "topics", "entity_name": "t"}, ConfigResource.topic("t"), "topic t"),
        ({"entity_type": "brokers", "entity_name": "1"}, ConfigResource.broker(1), "broker 1"),
        (
            {"entity_type": "brokers", "entity_default": True},
            ConfigResource.broker_defaults(),
            "default for brokers in the cluster",
        ),
    ],
)
def test_settings_belong_to_whom_the_options_name(
    options: Mapping[str, Any], resource: ConfigResource, named: str
) -> None:
    assert choose_resource(**options) == resource
    assert format_resource(resource) == named


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say whose settings"),
        ({"topic": "t", "broker": 1}, "give only one of --topic"),
        ({"entity_type": "topics"}, "say whose settings"),
        ({"entity_type": "brokers", "entity_name": "x"}, "'x' is not a broker id"),
        ({"client": "c"}, "kbroker quotas --help"),
        ({"entity_type": "users", "entity_name": "u"}, "kbroker quotas --help"),
    ],
)
def test_whose_settings_must_be_said_once_and_quotas_are_refused(
    options: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(click.UsageError, match=message):
        choose_resource(**options)


def test_a_setting_is_given_shown_and_taken_away(dev_cluster: DevCluster) -> None:
    def run(line: str) -> str:
        result = dev_cluster.run("kbroker", *line.split())
        assert result.returncode == 0, result.stderr
        return result.stdout

    run("topics create set")
    assert run("configs alter --topic set --add segment.ms=9000") == (
        "Completed updating config for topic set.\n"
    )
    first, line = run("configs --describe --entity-type topics --entity-name set").splitlines()
    assert first == "Dynamic configs for topic set are:"
    synonyms = "synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=9000}"
    assert line == f"  segment.ms=9000 sensitive=false {synonyms}"
    assert run("configs describe --topic set -o wide").splitlines() == [first, line]
    everything = json.loads(run("configs describe --topic set --all -o json"))["items"]
    by_name = {item["config"]: item["source"] for item in everything}
    assert (by_name["segment.ms"], by_name["flush.ms"]) == (
        "DYNAMIC_TOPIC_CONFIG",
        "DEFAULT_CONFIG",
    )
    run("configs alter --topic set --remove segment.ms")
    assert run("configs describe --topic set -o csv").count("\n") == 1


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("alter --topic set", 2, "say what to alter"),
        ("alter --topic set --add a=1 --remove a", 2, "both added and removed: a"),
        ("alter --topic never --add segment.ms=1", 1, "error: topic never: UNKNOWN_TOPIC"),
        ("alter --topic never --remove segment.ms", 1, "UNKNOWN_TOPIC"),
        ("describe --topic never", 1, "UNKNOWN_TOPIC"),
        ("describe --client c", 2, "kbroker quotas --help"),
    ],
)
def test_a_users_mistake_is_one_line(
    dev_cluster: DevCluster, line: str, code: int, message: str
) -> None:
    result = dev_cluster.run("kbroker", "configs", *line.split())
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert message in result.stderr
