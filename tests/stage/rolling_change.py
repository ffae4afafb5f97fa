"""The rolling change from PLAINTEXT to SASL_SSL, as docs/security.md has it, for brokers here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from broker.kbroker.local_cluster import HOST
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.settings import parse_properties
from tests.stage.certificates import Authority, as_pkcs12
from tests.stage.processes import ROOT

GUIDE = (ROOT / "docs" / "security.md").read_text("utf-8")
_, _, _SECTION = GUIDE.partition("\n## Secure a cluster that runs\n")
SECOND_LISTENER, STOCK_STORES, INTER_BROKER, ONLY_SECURE, AUTHORIZER = map(
    parse_properties,
    re.findall(r"```properties\n(.*?)```", _SECTION.partition("\n## ")[0], re.DOTALL),
)
"""The settings of each step, on top of those of the step before. STOCK_STORES are those that stock
brokers have in the first step too."""

PASSWORDS = {"broker": "change-me", "alice": "alices-secret"}
"""The users that there must be before the first step."""


def settings_here(
    step: Mapping[str, str], plain_port: int, secure_port: int, authority: Authority
) -> dict[str, str]:
    """Return the settings of a step for the broker with these ports."""
    places = {
        "kafka1.example.com:9092": f"{HOST}:{plain_port}",
        "kafka1.example.com:9093": f"{HOST}:{secure_port}",
        "/etc/kafka/ca.pem": authority.trusted,
        "/etc/kafka/broker.pem": str(authority.folder / "broker.pem"),
        "/etc/kafka/broker.p12": str(authority.folder / "broker.p12"),
    }

    def here(text: str) -> str:
        for place, local in places.items():
            text = text.replace(place, local)
        return text

    return {name: here(text) for name, text in step.items()}


def authority_at(folder: Path) -> Authority:
    """Return an authority that has signed the certificate of all brokers, also stock ones."""
    authority = Authority(folder)
    pem = authority.issue("broker.pem", HOST)
    as_pkcs12(pem, STOCK_STORES["ssl.keystore.password"])
    return authority


def security_of_alice(authority: Authority) -> dict[str, str]:
    """Return the settings of a client of ours that logs in."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": authority.trusted,
        "sasl.mechanism": SCRAM_SHA_512,
        "sasl.username": "alice",
        "sasl.password": PASSWORDS["alice"],
    }
