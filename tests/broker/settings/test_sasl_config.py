"""The settings of logins: what a listener has, and what is refused at the start."""

from __future__ import annotations

from typing import Any

import pytest

from broker.settings.config import BrokerConfig, load_broker_config
from broker.settings.sasl_config import (
    SECURED_HANDLERS,
    UNSECURED_HANDLER,
    own_mechanism,
    read_sasl_listeners,
)
from protocol.sasl.oauthbearer import TokenRules
from protocol.settings import SettingError

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required"
SCRAM = f"{MODULES}.scram.ScramLoginModule required"
TOKEN = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"

BASE = {
    "zookeeper.connect": "zk:1",
    "listeners": "IN://:1,OUT://:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
INSIDE = BASE | {
    "inter.broker.listener.name": "OUT",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.out.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="b" password="sesame";',
}


def load(*changes: dict[str, str], **named: str) -> BrokerConfig:
    given: dict[str, Any] = dict(BASE)
    for change in changes:
        given |= change
    return load_broker_config(given | named)[0]


def refusal(*changes: dict[str, str]) -> SettingError:
    with pytest.raises(SettingError) as refused:
        load(*changes)
    assert "sesame" not in str(refused.value)
    return refused.value


def test_a_listener_has_the_mechanisms_of_all_unless_it_has_its_own() -> None:
    own = {"listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
    assert [*read_sasl_listeners(load())["OUT"]] == ["SCRAM-SHA-512"]
    assert [*read_sasl_listeners(load(own))["OUT"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert read_sasl_listeners(load(own)).keys() == {"OUT"}


def test_two_listeners_have_different_users() -> None:
    config = load(
        {
            "listeners": "IN://:1,OUT://:2,MORE://:3",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT,MORE:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.out.plain.sasl.jaas.config": f'{PLAIN} user_a="1st" user_b.c=second;',
            "listener.name.more.plain.sasl.jaas.config": f'{PLAIN} user_a="2nd";',
        }
    )
    listeners = read_sasl_listeners(config)
    assert listeners["OUT"]["PLAIN"].passwords == {"a": "1st", "b.c": "second"}
    assert listeners["MORE"]["PLAIN"].passwords == {"a": "2nd"}


def test_the_longest_prefix_limits_a_session() -> None:
    lengths = {
        "connections.max.reauth.ms": "1",
        "listener.name.out.connections.max.reauth.ms": "2",
        "listener.name.out.scram-sha-512.connections.max.reauth.ms": "3",
    }
    for count, (name, value) in enumerate(lengths.items(), 1):
        given = dict([*lengths.items()][:count])
        mechanism = read_sasl_listeners(load(given))["OUT"]["SCRAM-SHA-512"]
        assert mechanism.max_reauth_ms == int(value), name


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms", "Kerberos"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "names no mechanism"),
        ({"sasl.enabled.mechanisms": "plain"}, "sasl.enabled.mechanisms", "no mechanism of Kafka"),
        (
            {"listener.name.out.sasl.enabled.mechanisms": "GSSAPI"},
            "listener.name.out.sasl.enabled.mechanisms",
            "Kerberos",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.out.plain.sasl.jaas.config",
            "is needed",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.jaas.config": f'{PLAIN} user_a="sesame";',
            },
            "listener.name.out.plain.sasl.jaas.config",
            "is needed",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f'{PLAIN} user_a="sesame"',
            },
            "listener.name.out.plain.sasl.jaas.config",
            "not terminated",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f"{PLAIN}; {PLAIN};",
            },
            "listener.name.out.plain.sasl.jaas.config",
            "2 login modules",
        ),
        (
            {
                "listener.name.out.scram-sha-512.sasl.jaas.config": (
                    "com.sun.security.auth.module.JndiLoginModule required;"
                )
            },
            "listener.name.out.scram-sha-512.sasl.jaas.config",
            "JndiLoginModule is not served",
        ),
        (
            {"listener.name.out.connections.max.reauth.ms": "soon"},
            "listener.name.out.connections.max.reauth.ms",
            "Not a number",
        ),
    ],
)
def test_what_cannot_be_is_refused_under_its_name(
    changes: dict[str, str], name: str, reason: str
) -> None:
    error = refusal(changes)
    assert error.name == name
    assert reason in error.reason


# ---- brokers among themselves


def test_brokers_log_in_with_the_name_and_password_of_their_entry() -> None:
    mechanism = own_mechanism(load(INSIDE), "OUT")
    assert mechanism is not None
    assert mechanism.entry is not None
    assert mechanism.entry.options == {"username": "b", "password": "sesame"}
    assert own_mechanism(load(), "IN") is None


def test_the_listener_between_brokers_may_be_named_by_its_protocol() -> None:
    config = load_broker_config(
        {
            "zookeeper.connect": "zk:1",
            "listeners": "PLAINTEXT://:1,SASL_PLAINTEXT://:2",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                f"{SCRAM} username=b password=sesame;"
            ),
        }
    )[0]
    assert config.inter_broker_listener == "SASL_PLAINTEXT"
    assert own_mechanism(config, "SASL_PLAINTEXT") is not None


def test_brokers_log_in_at_the_listener_of_the_controller_too() -> None:
    control = {
        "listeners": "IN://:1,OUT://:2,CONTROL://:3",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT,CONTROL:SASL_SSL",
        "control.plane.listener.name": "CONTROL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    }
    name = "listener.name.control.scram-sha-512.sasl.jaas.config"
    assert refusal(control).name == name
    mechanism = own_mechanism(load(control, {name: INSIDE[ENTRY]}), "CONTROL")
    assert mechanism is not None
    assert mechanism.name == "SCRAM-SHA-512"


ENTRY = "listener.name.out.scram-sha-512.sasl.jaas.config"


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
            "sasl.mechanism.inter.broker.protocol",
            "Kerberos",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "sasl.mechanism.inter.broker.protocol",
            "is not among sasl.enabled.mechanisms",
        ),
        ({ENTRY: f"{SCRAM} username=b;"}, ENTRY, "needs username and password"),
        ({ENTRY: f"{SCRAM};"}, ENTRY, "needs username and password"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": (
                    f"{PLAIN} username=b password=sesame user_c=sesame;"
                ),
            },
            "listener.name.out.plain.sasl.jaas.config",
            "has no user_b with the password",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
                "listener.name.out.oauthbearer.sasl.jaas.config": (
                    f"{TOKEN} unsecuredValidatorRequiredScope=a;"
                ),
            },
            "listener.name.out.oauthbearer.sasl.jaas.config",
            "unsecuredLoginStringClaim_sub",
        ),
    ],
)
def test_a_broker_that_could_not_log_in_at_others_does_not_start(
    changes: dict[str, str], name: str, reason: str
) -> None:
    error = refusal(INSIDE, changes)
    assert error.name == name
    assert reason in error.reason


# ---- tokens

TOKENS = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
HANDLER = "listener.name.out.oauthbearer.sasl.server.callback.handler.class"
TOKEN_ENTRY = "listener.name.out.oauthbearer.sasl.jaas.config"


def test_unsecured_tokens_are_accepted_only_where_the_file_says_so() -> None:
    error = refusal(TOKENS, {TOKEN_ENTRY: f"{TOKEN};"})
    assert error.name == "sasl.enabled.mechanisms"
    assert "needs keys" in error.reason
    for told in (
        {HANDLER: UNSECURED_HANDLER},
        {TOKEN_ENTRY: f'{TOKEN} unsecuredValidatorRequiredScope="a b";'},
    ):
        tokens = read_sasl_listeners(load(TOKENS, told))["OUT"]["OAUTHBEARER"].tokens
        assert tokens is not None
        assert tokens.keys_location is None
    assert tokens.rules == TokenRules(scopes=("a", "b"))


def test_signed_tokens_are_checked_by_the_rules_of_the_listener() -> None:
    config = load(
        TOKENS,
        {
            HANDLER: SECURED_HANDLERS[0],
            "listener.name.out.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file:///k.json",
            "sasl.oauthbearer.expected.issuer": "us",
            "listener.name.out.sasl.oauthbearer.expected.audience": "a,b",
            "sasl.oauthbearer.sub.claim.name": "email",
            "sasl.oauthbearer.clock.skew.seconds": "5",
        },
    )
    tokens = read_sasl_listeners(config)["OUT"]["OAUTHBEARER"].tokens
    assert tokens is not None
    assert tokens.keys_location == "/k.json"
    assert tokens.rules == TokenRules(
        user_claim="email", issuer="us", audiences=("a", "b"), clock_skew_ms=5000
    )


def test_keys_by_https_are_read_again_at_pauses_that_double() -> None:
    url = "https://example.com/keys"
    config = load(
        TOKENS,
        {
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "150",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "1000",
        },
    )
    tokens = read_sasl_listeners(config)["OUT"]["OAUTHBEARER"].tokens
    assert tokens is not None
    assert (tokens.keys_location, tokens.keys_refresh_ms) == (url, 3_600_000)
    assert [tokens.retry_pause_ms(n) for n in (0, 1, 2, 3, 10**9)] == [150, 300, 600, 1000, 1000]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({HANDLER: SECURED_HANDLERS[0]}, "sasl.server.callback.handler.class"),
        ({HANDLER: "com.example.Validator"}, "sasl.server.callback.handler.class"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "http://example.com/keys"},
            "sasl.oauthbearer.jwks.endpoint.url",
        ),
        (
            {
                "sasl.oauthbearer.jwks.endpoint.url": "file:///k",
                "kgroup.sasl.oauthbearer.public.key.location": "/k.pem",
            },
            "kgroup.sasl.oauthbearer.public.key.location",
        ),
    ],
)
def test_settings_of_tokens_that_cannot_be_are_refused(changes: dict[str, str], name: str) -> None:
    assert refusal(TOKENS, changes).name == name


def test_a_setting_of_a_listener_that_there_is_not_is_noted() -> None:
    name = "listener.name.typo.plain.sasl.jaas.config"
    _, notes = load_broker_config(BASE | {name: f'{PLAIN} user_a="sesame";'})
    assert notes == [f"{name}: there is no listener TYPO"]


def test_a_refusal_comes_before_its_connection_is_idle() -> None:
    error = refusal({"connections.max.idle.ms": "100"})
    assert error.name == "connection.failed.authentication.delay.ms"
    assert load({"connections.max.idle.ms": "-1"}).connections_max_idle_ms == -1


# ---- what must not be seen


def test_no_config_and_no_note_shows_a_password() -> None:
    unprefixed = {"sasl.jaas.config": f'{PLAIN} user_a="sesame";'}
    config, notes = load_broker_config(INSIDE | unprefixed)
    assert "sesame" not in repr(config) + repr(notes) + repr(read_sasl_listeners(config))
    assert notes == [
        "sasl.jaas.config=[hidden]: counts with its prefix alone, "
        "listener.name.<listener>.<mechanism>."
    ]
