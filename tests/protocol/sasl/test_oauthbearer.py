"""OAUTHBEARER: the messages of RFC 7628, claims, and tokens signed and not."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from protocol.sasl.exchange import Challenge, LoggedIn, LoginRefused, ServerRefused
from protocol.sasl.oauthbearer import (
    ACKNOWLEDGED,
    AcceptedToken,
    InvalidToken,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenRules,
    check_claims,
    parse_unsecured,
    unsecured_token,
)
from protocol.sasl.signed_tokens import BadKeys, SecurityExtraMissing, read_keys

NOW_MS = 1_700_000_000_000
CLAIMS = {"sub": "alice", "iat": NOW_MS // 1000 - 60, "exp": NOW_MS // 1000 + 60}


def validate(token: str) -> AcceptedToken:
    return check_claims(parse_unsecured(token), TokenRules(), NOW_MS)


SERVER = OAuthBearerServer(validate)


# ---- messages


def test_a_client_logs_in_with_its_token_until_that_expires() -> None:
    client = OAuthBearerClient(unsecured_token(CLAIMS), {"traceId": "123"})
    assert client.begin().startswith(b"n,,\x01auth=Bearer ey")
    assert client.begin().endswith(b"\x01traceId=123\x01\x01")
    assert SERVER.receive(client.begin()) == LoggedIn("alice", b"", NOW_MS + 60_000)
    assert client.receive(b"") is None


def test_an_invalid_token_is_refused_after_the_client_has_acknowledged_the_error() -> None:
    client = OAuthBearerClient(unsecured_token({**CLAIMS, "exp": NOW_MS // 1000 - 1}))
    challenge = SERVER.receive(client.begin())
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.token) == {"status": "invalid_token"}
    acknowledged = client.receive(challenge.token)
    assert acknowledged == ACKNOWLEDGED
    with pytest.raises(LoginRefused) as refused:
        challenge.then.receive(acknowledged)
    assert refused.value.message == '{"status":"invalid_token"}'
    assert refused.value.detail == "the token has expired"


def test_a_missing_scope_has_kafkas_text() -> None:
    with pytest.raises(InvalidToken) as error:
        check_claims(CLAIMS, TokenRules(scopes=("LOGIN_TO_KAFKA",)), NOW_MS)
    assert error.value.as_json() == '{"status":"insufficient_scope", "scope":"[LOGIN_TO_KAFKA]"}'


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01bad key=y\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
    ],
)
def test_a_malformed_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(LoginRefused) as refused:
        SERVER.receive(token)
    assert refused.value.message is None


def test_an_authorization_id_may_only_repeat_the_user() -> None:
    begin = OAuthBearerClient(unsecured_token(CLAIMS)).begin()
    assert SERVER.receive(begin.replace(b"n,,", b"n,a=alice,", 1)) == LoggedIn(
        "alice", b"", NOW_MS + 60_000
    )
    with pytest.raises(LoginRefused, match="authorization id"):
        SERVER.receive(begin.replace(b"n,,", b"n,a=admin,", 1))


def test_the_client_refuses_a_token_that_is_no_error() -> None:
    client = OAuthBearerClient("x")
    with pytest.raises(ServerRefused):
        client.receive(b"echo")
    assert client.receive(b"{}") == ACKNOWLEDGED
    with pytest.raises(ServerRefused):
        client.receive(b"{}")


def test_no_repr_shows_a_token() -> None:
    assert "sesame" not in repr(OAuthBearerClient("sesame", {"a": "sesame"}))


# ---- claims


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"sub": None}, "claim sub"),
        ({"sub": " "}, "claim sub"),
        ({"sub": 7}, "claim sub"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "soon"}, "exp is no number"),
        ({"exp": True}, "exp is no number"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": NOW_MS // 1000}, "has expired"),
        ({"iat": NOW_MS // 1000 + 1}, "iat is in the future"),
        ({"nbf": NOW_MS // 1000 + 1}, "nbf is in the future"),
        ({"iss": "other"}, "another issuer"),
        ({"aud": ["other"]}, "another audience"),
        ({"aud": 7}, "aud is neither"),
        ({"scope": {"a": 1}}, "scope is neither"),
        ({"scope": "a"}, "scope is missing"),
    ],
)
def test_a_claim_that_is_wrong_is_named(changes: Mapping[str, Any], detail: str) -> None:
    rules = TokenRules(scopes=("a", "b"), issuer="us", audiences=("kafka", "k2"))
    claims = {**CLAIMS, "iss": "us", "aud": "kafka", "scope": ["a", "b", "c"]}
    assert check_claims(claims, rules, NOW_MS).user == "alice"
    assert check_claims({**claims, "scope": "b a"}, rules, NOW_MS).user == "alice"
    with pytest.raises(InvalidToken, match=detail):
        check_claims({**claims, **changes}, rules, NOW_MS)


def test_clocks_may_differ_by_the_skew() -> None:
    rules = TokenRules(clock_skew_ms=1001)
    late = {**CLAIMS, "exp": NOW_MS // 1000 - 1}
    assert check_claims(late, rules, NOW_MS).expires_at_ms == NOW_MS - 1000
    early = {**CLAIMS, "iat": NOW_MS // 1000 + 1}
    assert check_claims(early, rules, NOW_MS).user == "alice"


def test_a_claim_of_another_name_may_be_the_user() -> None:
    rules = TokenRules(user_claim="email")
    assert check_claims({**CLAIMS, "email": "a@b.c"}, rules, NOW_MS).user == "a@b.c"


@pytest.mark.parametrize(
    "token", ["", "a.b", "..", "e30..", "e30.e30.", "!.!.", "bnVsbA.e30.", "e30.e30.x"]
)
def test_an_unsecured_token_is_a_jws_without_signature(token: str) -> None:
    with pytest.raises(InvalidToken):
        parse_unsecured(token)


# ---- signatures

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def jwks() -> bytes:
    keys = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "r"},
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key())), "kid": "e"},
        {
            "kty": "oct",
            "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTMyMzI",
            "kid": "o",
            "alg": "HS256",
        },
    ]
    return json.dumps({"keys": keys}).encode()


@pytest.mark.parametrize(("key", "algorithm", "key_id"), [(RSA, "RS256", "r"), (EC, "ES256", "e")])
def test_a_token_signed_by_a_key_of_the_set_is_verified(
    key: Any, algorithm: str, key_id: str
) -> None:
    token = jwt.encode(CLAIMS, key, algorithm, headers={"kid": key_id})
    assert read_keys(jwks()).verify(token) == CLAIMS


def test_a_single_key_verifies_tokens_with_any_id_and_none() -> None:
    keys = read_keys(pem(RSA))
    assert keys.verify(jwt.encode(CLAIMS, RSA, "RS256")) == CLAIMS
    assert keys.verify(jwt.encode(CLAIMS, RSA, "RS256", headers={"kid": "x"})) == CLAIMS


def test_tokens_that_nobody_trusted_has_signed_are_refused() -> None:
    keys = read_keys(jwks())
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    secret = b"secret-secret-secret-secret-3232"
    tokens = [
        unsecured_token(CLAIMS),
        jwt.encode(CLAIMS, other, "RS256", headers={"kid": "r"}),
        jwt.encode(CLAIMS, RSA, "RS256", headers={"kid": "unknown"}),
        jwt.encode(CLAIMS, RSA, "RS256"),  # which of the keys?
        jwt.encode(CLAIMS, secret, "HS256", headers={"kid": "o"}),
        jwt.encode(CLAIMS, RSA, "RS256", headers={"kid": "e"}),
        jwt.encode(CLAIMS, RSA, "RS256", headers={"kid": "r"})[:-4] + "AAAA",
        "a.b.c",
        "",
    ]
    for token in tokens:
        with pytest.raises(InvalidToken):
            keys.verify(token)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b'{"keys": []}',
        b"[]",
        b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----",
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "o"}]}',
    ],
)
def test_a_file_without_public_keys_is_refused(text: bytes) -> None:
    with pytest.raises(BadKeys):
        read_keys(text)


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(SecurityExtraMissing, match=r"pip install 'kgroup\[security\]'"):
        read_keys(pem(RSA))
