"""The settings of a client's login: what they make, and what is refused before any connection."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from clients.config import ClusterConfig
from clients.high_level.config import load_consumer_config
from clients.high_level.member_config import load_member_config
from clients.producer.config import load_producer_config
from clients.security import login_of, protocol_of
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256
from protocol.settings import SettingError, load

MODULES = "org.apache.kafka.common.security"
SCRAM = f"{MODULES}.scram.ScramLoginModule required"
TOKEN = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": SCRAM_SHA_256,
    "sasl.username": "alice",
    "sasl.password": "sesame",
}
BARE = {name: LOGIN[name] for name in ("security.protocol", "sasl.mechanism")}


def config_of(settings: dict[str, Any]) -> ClusterConfig:
    return load(ClusterConfig, settings)[0]


def first_token(settings: dict[str, Any]) -> bytes:
    login = login_of(config_of(settings))
    assert login is not None
    return login.begin().begin()


def claims_of(settings: dict[str, Any]) -> dict[str, Any]:
    token = first_token(settings).split(b"\x01")[1].removeprefix(b"auth=Bearer ")
    text = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    return claims


def test_without_a_protocol_there_is_no_login() -> None:
    assert login_of(config_of({})) is None
    # As in Kafka, the others have no effect then.
    assert login_of(config_of({"sasl.mechanism": PLAIN, "sasl.username": "u"})) is None


@pytest.mark.parametrize(
    "settings",
    [
        LOGIN,
        LOGIN | {"security.protocol": "sasl_plaintext"},
        BARE | {"sasl.jaas.config": f"{SCRAM} username=alice password=sesame;"},
        {name.replace(".", "_"): text for name, text in LOGIN.items()},
    ],
)
def test_all_spellings_make_the_same_login(settings: dict[str, Any]) -> None:
    assert first_token(settings).startswith(b"n,,n=alice,r=")


def test_librdkafkas_spelling_of_the_mechanism_is_taken() -> None:
    settings = LOGIN | {"sasl.mechanisms": PLAIN}
    del settings["sasl.mechanism"]
    assert first_token(settings) == b"\0alice\0sesame"


@pytest.mark.parametrize(
    "load_config", [load_producer_config, load_consumer_config, load_member_config]
)
def test_every_client_has_the_settings_of_a_login(load_config: Any) -> None:
    more = {
        load_producer_config: {},
        load_consumer_config: {"group.id": "g", "zookeeper.connect": "zk:1"},
        load_member_config: {
            "group.id": "g",
            "membership": "coordinator",
            "bootstrap.servers": "b:1",
        },
    }[load_config]
    config, _ = load_config(LOGIN | more)
    for cluster_config in (config, getattr(config, "cluster_config", config)):
        assert login_of(cluster_config) is not None
        assert "sesame" not in repr(cluster_config)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"security.protocol": "SASL"}, "security.protocol", "String must be one of"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "Kerberos is not served"),
        ({"sasl.mechanism": "scram-sha-256"}, "sasl.mechanism", "no mechanism of Kafka"),
        ({"sasl.username": ""}, "sasl.jaas.config", "are needed"),
        ({"sasl.password": ""}, "sasl.jaas.config", "are needed"),
        (
            {"sasl.jaas.config": f"{SCRAM} username=alice password=sesame;"},
            "sasl.username",
            "cannot stand beside",
        ),
        (
            {
                "sasl.login.callback.handler.class": "com.example.Login",
            },
            "sasl.login.callback.handler.class",
            "no class is loaded",
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://example.com/token"},
            "sasl.oauthbearer.token.endpoint.url",
            "only files are read",
        ),
    ],
)
def test_settings_that_make_no_login_are_refused(
    changes: dict[str, str], name: str, reason: str
) -> None:
    with pytest.raises(SettingError, match=reason) as refused:
        login_of(config_of(LOGIN | changes))
    assert refused.value.name == name
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (f"{SCRAM} username=alice;", "has no password"),
        (f"{SCRAM} password=sesame;", "has no username"),
        (f"{SCRAM} username=alice password=sesame tokenauth=true;", "tokenauth"),
        (f"{SCRAM} username=alice password=sesame", "not terminated"),
        (f"{SCRAM} username=alice password=1sesame;", "has to be quoted"),
        (f"{MODULES}.plain.PlainLoginModule required;", "is not of SCRAM-SHA-256"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule is not served"),
    ],
)
def test_an_entry_that_makes_no_login_is_refused_without_being_shown(
    entry: str, reason: str
) -> None:
    with pytest.raises(SettingError, match=reason) as refused:
        login_of(config_of(BARE | {"sasl.jaas.config": entry}))
    assert refused.value.name == "sasl.jaas.config"
    assert "sesame" not in str(refused.value)


# ---- tokens


def test_an_unsecured_token_has_the_claims_of_its_options() -> None:
    settings = BARE | {
        "sasl.mechanism": OAUTHBEARER,
        "sasl.jaas.config": (
            f'{TOKEN} unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="7"'
            ' unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60"'
            ' unsecuredLoginExtension_trace="x";'
        ),
    }
    claims = claims_of(settings)
    assert (claims["sub"], claims["n"], claims["scope"]) == ("alice", 7, ["a", "b"])
    assert claims["exp"] - claims["iat"] == 60
    assert first_token(settings).endswith(b"\x01trace=x\x01\x01")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "needs unsecuredLoginStringClaim_sub"),
        (
            'unsecuredLoginStringClaim_sub="a" unsecuredLoginPrincipalClaimName="email"',
            "needs unsecuredLoginStringClaim_email",
        ),
        (
            'unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="x"',
            "LifetimeSeconds is no number",
        ),
    ],
)
def test_an_unsecured_token_that_cannot_be_is_refused(options: str, reason: str) -> None:
    entry = f"{TOKEN} {options};"
    with pytest.raises(SettingError, match=reason):
        login_of(config_of(BARE | {"sasl.mechanism": OAUTHBEARER, "sasl.jaas.config": entry}))


def test_a_token_is_read_again_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = login_of(
        config_of(
            BARE
            | {
                "sasl.mechanism": OAUTHBEARER,
                "sasl.oauthbearer.token.endpoint.url": f"file://{file}",
            }
        )
    )
    assert login is not None
    for token in ("a.b.c", "d.e.f"):
        file.write_text(f"{token}\n")
        assert login.begin().begin() == f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_the_protocol_is_known_in_each_spelling() -> None:
    assert protocol_of({}) == "PLAINTEXT"
    assert protocol_of({"security.protocol": "sasl_plaintext"}) == "SASL_PLAINTEXT"
    assert protocol_of({"security_protocol": "SASL_PLAINTEXT"}) == "SASL_PLAINTEXT"
