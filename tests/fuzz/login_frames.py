"""Draw frames of logins, from a seed: handshakes, tokens of all mechanisms, and others."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from protocol.api_key import ApiKey
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from protocol.sasl.oauthbearer import unsecured_token
from tests.fuzz.frames import NAMES, Frame, bend, draw_bent, draw_frame

USER, PASSWORD = "walker", "sesame"
"""A user of every mechanism, with everything allowed."""

LONG_AGO_S, FAR_AWAY_S = 1_000_000_000, 4_000_000_000
"""Ends of tokens: for sessions that are over at their beginning, and that outlast a run."""

MECHANISMS = (PLAIN, SCRAM_SHA_256, OAUTHBEARER)
"""Those that the listener has."""

_WORDS = (USER, "", *NAMES, "=2C=3D", "\0", "x" * 5000)
_CLAIMS = (*_WORDS, None, True, 0, -1, 1e308, float("nan"), float("inf"), 10**400, [], ["a"], {})


def handshake(mechanism: str, version: int = 1) -> bytes:
    """Return the frame that begins a login."""
    request = SaslHandshakeRequest(mechanism=mechanism)
    return encode_request(ApiKey.SASL_HANDSHAKE, version, 1, "fuzz", request)


def authenticate(token: bytes, version: int = 1) -> bytes:
    """Return the frame of a token."""
    request = SaslAuthenticateRequest(auth_bytes=token)
    return encode_request(ApiKey.SASL_AUTHENTICATE, version, 2, "fuzz", request)


def plain_token() -> bytes:
    """Return the token by which USER logs in."""
    return b"\0".join((b"", USER.encode(), PASSWORD.encode()))


def bearer_token(claims: Mapping[str, Any]) -> bytes:
    """Return the token of whoever has these claims."""
    return f"n,,\x01auth=Bearer {unsecured_token(claims)}\x01\x01".encode()


def draw_login(rng: random.Random) -> list[Frame]:
    """Draw what a client sends that wants to log in, or to try what the broker bears."""
    mechanism = rng.choice(MECHANISMS)
    version = rng.choice((0, 1, 1))
    frames = [handshake(mechanism, version)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        token = _token(rng, mechanism)
        if version == 0:
            frames.append(len(token).to_bytes(4, "big") + token)
        else:
            frames.append(authenticate(token, rng.choice((0, 1, 2))))
    if rng.random() < 0.3:
        frames.insert(rng.randint(0, 1), _versions(rng))

    drawn = [draw_bent(rng, frame) if rng.random() < 0.2 else Frame(frame) for frame in frames]
    # Others in between, and behind.
    for _ in range(rng.choice((0, 0, 1, 3))):
        drawn.insert(rng.randint(0, len(drawn)), draw_frame(rng))
    return drawn


def draw_again(rng: random.Random) -> list[Frame]:
    """Draw what a client sends in a session that ends some time: requests, and logins again."""
    drawn = []
    for _ in range(rng.choice((1, 5, 10))):
        if rng.random() < 0.7:
            drawn.append(draw_frame(rng))
        else:
            drawn += draw_login(rng)
    return drawn


def _versions(rng: random.Random) -> bytes:
    version = rng.choice((0, 3))
    return encode_request(ApiKey.API_VERSIONS, version, 3, "fuzz", ApiVersionsRequest())


# ---- tokens


def _token(rng: random.Random, mechanism: str) -> bytes:
    draw = rng.choice((_DRAW[mechanism], _DRAW[mechanism], _any_token))
    token = draw(rng)
    return bytes(bend(rng, bytearray(token))) if rng.random() < 0.3 else token


def _any_token(rng: random.Random) -> bytes:
    return rng.choice(
        (b"", b"\x01", b"\0" * 5, rng.randbytes(rng.choice((1, 30, 3000))), b"\xff" * 30_000)
    )


def _plain(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return plain_token()
    return "\0".join(rng.choice(_WORDS) for _ in range(rng.choice((1, 3, 3, 3, 4)))).encode()


def _scram(rng: random.Random) -> bytes:
    user, nonce = rng.choice(_WORDS), rng.choice(("abc", "", "é", "x" * 5000))
    return rng.choice(
        (
            f"n,,n={USER},r=abc",
            f"n,a={user},n={user},r={nonce}",
            f"n,,n={user},r={nonce},tokenauth=true",
            f"y,,m=x,n={user},r={nonce},{'a=b,' * rng.choice((0, 1, 500))}",
            f"c=biws,r={nonce},p={base64.b64encode(rng.randbytes(32)).decode()}",
            f"c=biws,r={nonce},p=====",
        )
    ).encode()


def _bearer(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.4:
        return bearer_token({"sub": USER, "exp": rng.choice((LONG_AGO_S, FAR_AWAY_S))})
    if kind < 0.8:
        names = ("sub", "exp", "iat", "nbf", "scope", "aud", "iss")
        return bearer_token({name: rng.choice(_CLAIMS) for name in names if rng.random() < 0.7})

    # Parts that are no claims at all.
    part = rng.choice(("[" * 5000, "9" * 5000, '"x"', "{", json.dumps({"alg": "none"})))
    parts = ".".join([base64.urlsafe_b64encode(part.encode()).decode()] * rng.choice((1, 2, 3, 9)))
    return f"n,,\x01auth=Bearer {parts}\x01\x01".encode()


_DRAW: dict[str, Callable[[random.Random], bytes]] = {
    PLAIN: _plain,
    SCRAM_SHA_256: _scram,
    SCRAM_SHA_512: _scram,
    OAUTHBEARER: _bearer,
}
