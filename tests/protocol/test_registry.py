"""The registry: what is served and what is only known, and the table of it in the docs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from broker.handlers.api_versions import LAST_OF_KAFKA, NOT_OF_KAFKA
from protocol.api_key import ApiKey
from protocol.registry import API
from protocol.wire import NO_VERSIONS, Versions, declaration_of

KAFKAS = Path(__file__).parent / "golden" / "api_versions_2.8.2.tsv"
"""The APIs of a broker with ZooKeeper, made of Kafka's message definitions: key, name, versions."""
DOCS = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"

NOT_ALL_SERVED: dict[ApiKey, str] = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: "our brokers have no groups of the protocol consumer",
    ApiKey.LIST_GROUPS: "version 5 has the types of groups, and our brokers have one",
}
"""The APIs of which our clients know more versions than our broker serves, and why."""

BETWEEN_BROKERS = "inter.broker.protocol.version 2.3 uses no later one"
FEWER_THAN_KAFKA: dict[ApiKey, str] = {
    ApiKey.LEADER_AND_ISR: BETWEEN_BROKERS,
    ApiKey.STOP_REPLICA: BETWEEN_BROKERS,
    ApiKey.UPDATE_METADATA: BETWEEN_BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: BETWEEN_BROKERS,
}
"""The APIs of which a broker of Kafka 2.8.2 serves more versions than ours, and why."""


TOKENS = "delegation tokens are not served"
NOT_SERVED: dict[str, str] = {
    "CREATE_DELEGATION_TOKEN": TOKENS,
    "RENEW_DELEGATION_TOKEN": TOKENS,
    "EXPIRE_DELEGATION_TOKEN": TOKENS,
    "DESCRIBE_DELEGATION_TOKEN": TOKENS,
    "ALTER_ISR": "inter.broker.protocol.version 2.3 does without",
    "UPDATE_FEATURES": "inter.broker.protocol.version 2.3 has no features",
}
"""The APIs of a broker of Kafka 2.8.2 that ours do not serve, and why."""


def kafkas() -> dict[int, tuple[str, Versions, int | None]]:
    with KAFKAS.open(newline="") as file:
        return {
            int(row["key"]): (
                row["name"],
                Versions(int(row["first"]), int(row["last"])),
                int(row["first_flexible"]) if row["first_flexible"] else None,
            )
            for row in csv.DictReader(file, delimiter="\t")
        }


def test_served_versions_are_those_of_kafka_2_8_2_at_least() -> None:
    fewer = set()
    for api in API.values():
        if api.served != NO_VERSIONS and api.key not in NOT_OF_KAFKA:
            name, versions, _ = kafkas()[api.key]
            assert (api.key.name, api.served.first) == (name, versions.first)
            if api.served.last < versions.last:
                fewer.add(api.key)
    assert fewer <= FEWER_THAN_KAFKA.keys()


def test_an_api_of_kafka_2_8_2_that_is_not_served_says_why() -> None:
    served = {api.key for api in API.values() if api.served != NO_VERSIONS}
    missing = {name for key, (name, _, _) in kafkas().items() if key not in served}
    assert missing <= NOT_SERVED.keys()


def test_a_client_that_asks_one_broker_for_all_gets_no_version_that_stock_brokers_lack() -> None:
    served = {key: api.served for key, api in API.items() if api.served != NO_VERSIONS}
    assert served.keys() - kafkas().keys() == NOT_OF_KAFKA
    later = {
        key: kafkas()[key][1].last
        for key in served.keys() & kafkas().keys()
        if served[key].last > kafkas()[key][1].last
    }
    assert later == LAST_OF_KAFKA


def test_versions_are_flexible_where_kafkas_are() -> None:
    for api in API.values():
        if api.key in kafkas():
            _, versions, first_flexible = kafkas()[api.key]
            ours = declaration_of(api.request).first_flexible
            if ours is None:
                assert first_flexible is None or first_flexible > api.versions.last
            elif ours <= versions.last:
                assert ours == first_flexible, api.key.name


def test_an_api_that_is_not_served_in_all_its_versions_says_why() -> None:
    assert {api.key for api in API.values() if api.served != api.versions} == NOT_ALL_SERVED.keys()


def test_served_versions_are_among_those_the_codec_knows() -> None:
    for api in API.values():
        if api.served != NO_VERSIONS:
            assert api.versions.first <= api.served.first <= api.served.last <= api.versions.last


ONE_AT_A_TIME = {
    ApiKey.DELETE_TOPICS: "our clients name topics, version 6 takes ids too",
    ApiKey.FIND_COORDINATOR: "our clients ask for one coordinator, version 4 takes several keys",
    ApiKey.OFFSET_FETCH: "our clients ask for one group, version 8 takes several",
}


def test_an_api_whose_last_version_our_clients_do_not_send_says_why() -> None:
    assert {api.key for api in API.values() if api.sent != api.versions} == ONE_AT_A_TIME.keys()


def test_the_docs_list_every_api_with_its_versions() -> None:
    rows = [line for line in DOCS.read_text("utf-8").splitlines() if re.match(r"\| \d", line)]
    expected = [
        f"| {api.key.value} | {api.key.name} | {as_text(api.served)} | {as_text(api.versions)} |"
        for api in sorted(API.values(), key=lambda api: api.key)
    ]
    assert rows == expected, "docs/protocol.md should have\n" + "\n".join(expected)


def as_text(versions: Versions) -> str:
    if versions == NO_VERSIONS:
        return "–"
    if versions.first == versions.last:
        return str(versions.first)
    return f"{versions.first}–{versions.last}"
