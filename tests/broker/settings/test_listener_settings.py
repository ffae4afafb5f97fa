"""The settings of one listener."""

from __future__ import annotations

from broker.settings.listener_settings import select_for_listener

GIVEN = {
    "ssl.client.auth": "none",
    "ssl.protocol": "TLSv1.2",
    "listener.name.inside.ssl.client.auth": "required",
    "listener.name.inside.scram-sha-512.sasl.jaas.config": "inside's",
    "listener.name.outside.ssl.client.auth": "requested",
}


def test_a_listeners_own_setting_comes_before_the_general_one() -> None:
    assert select_for_listener(GIVEN, "INSIDE") == {
        "ssl.client.auth": "required",
        "ssl.protocol": "TLSv1.2",
        "scram-sha-512.sasl.jaas.config": "inside's",
    }


def test_a_listener_without_settings_of_its_own_has_the_general_ones() -> None:
    assert select_for_listener(GIVEN, "IN") == {
        "ssl.client.auth": "none",
        "ssl.protocol": "TLSv1.2",
    }
