"""`kbroker quotas`, and the commands of docs/quotas.md, on a running cluster."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from broker.kbroker.quotas import choose_parts
from tests.stage.cluster import DevCluster

NOTHING: dict[str, Any] = {
    "user": None,
    "user_default": False,
    "client": None,
    "client_default": False,
    "ip": None,
    "ip_default": False,
    "entity_types": (),
    "entity_names": (),
    "entity_default": False,
}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({}, {}),
        ({"user": "u"}, {"user": "u"}),
        ({"user_default": True, "client": "c"}, {"user": None, "client-id": "c"}),
        (
            {"entity_types": ("users", "clients"), "entity_names": ("u", "c")},
            {"user": "u", "client-id": "c"},
        ),
        ({"entity_types": ("users",), "entity_default": True}, {"user": None}),
        (
            {"entity_types": ("users", "clients"), "entity_names": ("u",), "entity_default": True},
            {"user": "u", "client-id": None},
        ),
        ({"entity_types": ("ips",), "entity_names": ("1.2.3.4",)}, {"ip": "1.2.3.4"}),
        ({"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}),
        ({"ip_default": True}, {"ip": None}),
    ],
)
def test_options_name_an_entity(options: dict[str, Any], parts: dict[str, str | None]) -> None:
    assert choose_parts(**NOTHING | options) == parts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"user": "u", "user_default": True}, "a name or the default, not both"),
        ({"entity_types": ("users", "clients"), "entity_names": ("u",)}, "clients has no"),
        ({"entity_names": ("u",)}, "needs an --entity-type"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(click.UsageError, match=message):
        choose_parts(**NOTHING | options)


def test_commands_of_the_docs_set_and_show_quotas(dev_cluster: DevCluster) -> None:
    docs = (Path(__file__).parents[3] / "docs" / "quotas.md").read_text("utf-8")
    commands = re.findall(r"^    kbroker (quotas .+)$", docs, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        ran = dev_cluster.run("kbroker", *shlex.split(command))
        assert ran.returncode == 0, (command, ran.stderr)

    listed = dev_cluster.run("kbroker", "quotas", "describe", "-o", "json")
    items = {
        (item["user"] or item["ip"], item["client_id"], item["quota"]): item["value"]
        for item in json.loads(listed.stdout)["items"]
    }
    assert items == {
        (None, "etl", "consumer_byte_rate"): 2097152,
        (None, "etl", "request_percentage"): 25,
        ("alice", "etl", "producer_byte_rate"): 524288,
        (None, "<default>", "producer_byte_rate"): 10485760,
        ("198.51.100.7", None, "connection_creation_rate"): 5,
        ("<default>", None, "connection_creation_rate"): 1000,
    }

    # Other tests share the cluster.
    for options, keys in (
        ("--client etl", "consumer_byte_rate,request_percentage"),
        ("--user alice --client etl", "producer_byte_rate"),
        ("--client-default", "producer_byte_rate"),
    ):
        line = f"quotas alter {options} --remove {keys}"
        assert dev_cluster.run("kbroker", *line.split()).returncode == 0
    for options in ("--ip 198.51.100.7", "--ip-default"):
        line = f"quotas alter {options} --remove connection_creation_rate"
        assert dev_cluster.run("kbroker", *line.split()).returncode == 0


@pytest.mark.fault("strangers-183")
@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("alter --user u --remove no_such_rate", 1, "error: user u has no quota no_such_rate\n"),
        (
            "alter --client c --add producer_byte_rate=1 --remove request_percentage",
            1,
            "error: client-id c has no quota request_percentage\n",
        ),
        ("alter --user u", 2, "nothing to change"),
        ("alter --add producer_byte_rate=1", 2, "say whose quota"),
        ("alter --user u --add producer_byte_rate=much", 2, "not a number"),
        (
            "alter --user u --add no_such_rate=1",
            1,
            "Invalid configuration key no_such_rate; known are consumer_byte_rate, controller_m",
        ),
        ("alter --user u --add producer_byte_rate=0.5", 1, "must be a Long value"),
        ("alter --ip no.host.invalid --add connection_creation_rate=1", 1, "resolvable host"),
    ],
)
def test_quota_that_cannot_be_is_refused(
    dev_cluster: DevCluster, line: str, code: int, message: str
) -> None:
    ran = dev_cluster.run("kbroker", "quotas", *line.split())
    assert ran.returncode == code
    assert message in ran.stderr
