"""The settings in docs/security.md are ones that brokers and clients take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.authentication.inter_broker import own_login
from broker.settings.config import load_broker_config
from broker.settings.sasl_config import read_sasl_listeners
from clients.config import ClusterConfig
from clients.security import login_of
from protocol.settings import load, parse_properties

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
LOGINS = GUIDE.read_text("utf-8").partition("## Logins (SASL)")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```properties\n(.*?)```", LOGINS, re.DOTALL)
OF_BROKERS = [block for block in BLOCKS if "listeners=" in block]
OF_CLIENTS = [block for block in BLOCKS if "security.protocol=" in block]


def test_each_block_is_of_a_broker_or_of_a_client() -> None:
    assert len(OF_BROKERS) == 3
    assert len(OF_CLIENTS) == 4
    assert {*OF_BROKERS, *OF_CLIENTS} == {*BLOCKS}


@pytest.mark.parametrize("block", OF_BROKERS)
def test_a_broker_takes_the_settings_of_the_guide(block: str) -> None:
    config, notes = load_broker_config({"zookeeper.connect": "zk:1"} | parse_properties(block))
    assert notes == []
    assert read_sasl_listeners(config)
    login = own_login(config, config.inter_broker_listener)
    assert (login is None) == ("BROKERS:PLAINTEXT" in block)


@pytest.mark.parametrize("block", OF_CLIENTS)
def test_a_client_logs_in_by_the_settings_of_the_guide(block: str) -> None:
    config, notes = load(ClusterConfig, parse_properties(block))
    assert notes == []
    login = login_of(config)
    assert login is not None
    assert login.mechanism == config.sasl_mechanism
