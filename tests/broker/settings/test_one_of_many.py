"""The settings of several brokers of one host, from one file."""

import pytest

from broker.settings.config import load_broker_config
from broker.settings.one_of_many import derive_settings
from protocol.settings import SettingError

FILE = {"broker.id": "10", "zookeeper.connect": "z:1", "log.dirs": "/a,/b"}


def test_ids_ports_directories_and_metrics_ports_count_up() -> None:
    given = FILE | {
        "listeners": "PLAINTEXT://h:9092",
        "advertised.listeners": "PLAINTEXT://public:19092",
        "kgroup.metrics.port": "7000",
    }
    assert derive_settings(given, 2, "host-1") == [
        {
            "broker.id": "10",
            "log.dirs": "/a/broker_10,/b/broker_10",
            "broker.rack": "host-1",
            "listeners": "PLAINTEXT://h:9092",
            "advertised.listeners": "PLAINTEXT://public:19092",
            "kgroup.metrics.port": "7000",
        },
        {
            "broker.id": "11",
            "log.dirs": "/a/broker_11,/b/broker_11",
            "broker.rack": "host-1",
            "listeners": "PLAINTEXT://h:9093",
            "advertised.listeners": "PLAINTEXT://public:19093",
            "kgroup.metrics.port": "7001",
        },
    ]


def test_each_derived_broker_loads() -> None:
    for settings in derive_settings(FILE, 3, "h"):
        load_broker_config(FILE | settings)


def test_old_settings_of_the_port_count_up_too() -> None:
    derived = derive_settings(FILE | {"port": "9000", "advertised.port": "9100"}, 2, "h")
    assert [(one["port"], one["advertised.port"]) for one in derived] == [
        ("9000", "9100"),
        ("9001", "9101"),
    ]


def test_a_rack_in_the_file_stays_and_port_0_is_any_free_one() -> None:
    given = FILE | {"broker.rack": "r", "listeners": "PLAINTEXT://h:0"}
    for one in derive_settings(given, 2, "h"):
        assert (one["broker.rack"], one["listeners"]) == ("r", "PLAINTEXT://h:0")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"broker.id": "-1"}, "broker.id.* is needed"),
        ({"listeners": "PLAINTEXT://h:65535"}, "above 65535"),
        (
            {
                "listeners": "PLAINTEXT://h:9092,INSIDE://h:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            },
            "9092 and 9093 are too close",
        ),
    ],
)
def test_what_no_brokers_can_be_derived_from_is_refused(
    changed: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        derive_settings(FILE | changed, 2, "h")
