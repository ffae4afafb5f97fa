"""Keys of OAUTHBEARER by https: bounds, redirections, failures; and keys that change."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from broker.authentication import key_document
from broker.authentication.key_document import MAX_BYTES, read_document
from broker.authentication.token_validator import HASTE_PAUSE_MS, TokenValidator
from broker.settings.sasl_config import TokenConfig
from protocol.sasl.oauthbearer import InvalidToken, TokenRules
from protocol.settings import SettingError
from tests.stage.certificates import Authority
from tests.stage.waiting import until

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]

HOUR_MS = 3_600_000
KEYS = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in "ab"}


@attrs.define(eq=False)
class Site:
    """A server of https whose page a test may change."""

    url: str
    answer: Answer


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    authority = Authority(tmp_path)
    # The certificates of the system.
    monkeypatch.setenv("SSL_CERT_FILE", authority.trusted)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("server.pem", "localhost"))
    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    served = Site(f"https://localhost:{server.server_address[1]}/keys", page(b"{}"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page(body: bytes, code: int = 200, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            handler.send_response(code)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

    return answer


def key_set(*names: str) -> bytes:
    keys = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEYS[name].public_key())), "kid": name}
        for name in names
    ]
    return json.dumps({"keys": keys}).encode()


def token(name: str) -> str:
    return jwt.encode({"sub": "alice", "exp": 1000}, KEYS[name], "RS256", headers={"kid": name})


def validator(location: str, refresh_ms: int = HOUR_MS) -> TokenValidator:
    config = TokenConfig(TokenRules(), location, refresh_ms, 1, 5)
    return TokenValidator(config, lambda: 0, lambda: 0)


# ---- documents


def test_a_page_is_read(site: Site) -> None:
    site.answer = page(b"x" * MAX_BYTES)
    assert read_document(site.url) == b"x" * MAX_BYTES


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"{}")
    assert read_document(str(path)) == b"{}"


def test_a_document_beyond_the_bound_is_refused(site: Site, tmp_path: Path) -> None:
    site.answer = page(b"x" * (MAX_BYTES + 1))
    path = tmp_path / "keys"
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    for location in (site.url, str(path), "/dev/zero"):
        with pytest.raises(OSError, match="more than 1048576 bytes"):
            read_document(location)


def test_a_page_that_takes_too_long_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_document, "FETCH_S", -1.0)
    with pytest.raises(OSError, match="not complete after"):
        read_document(site.url)


def test_a_server_that_is_silent_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_document, "SILENCE_S", 0.05)
    is_over = threading.Event()

    def be_silent(handler: http.server.BaseHTTPRequestHandler) -> None:
        is_over.wait(20)

    site.answer = be_silent
    try:
        with pytest.raises(TimeoutError):
            read_document(site.url)
    finally:
        is_over.set()


def test_a_redirection_is_followed_to_https_alone(site: Site) -> None:
    def redirect(handler: http.server.BaseHTTPRequestHandler) -> None:
        target = {"/keys": "/other", "/plain": "http://localhost/keys"}.get(handler.path)
        answer = page(b"there") if target is None else page(b"", 302, Location=target)
        answer(handler)

    site.answer = redirect
    assert read_document(site.url) == b"there"
    with pytest.raises(OSError, match="something else than https"):
        read_document(site.url.replace("keys", "plain"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (page(b"", 500), "500"),
        (lambda handler: handler.wfile.write(b"SSH-2.0-x\r\n"), "no page of HTTP"),
    ],
)
def test_what_is_no_page_is_an_oserror(site: Site, answer: Answer, reason: str) -> None:
    site.answer = answer
    with pytest.raises(OSError, match=reason):
        read_document(site.url)


def test_a_server_that_nobody_vouches_for_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        read_document(site.url)


# ---- keys that change


async def test_keys_by_https_check_tokens(site: Site) -> None:
    site.answer = page(key_set("a"))
    tokens = validator(site.url)
    await tokens.read()
    assert tokens.validate(token("a")).user == "alice"
    with pytest.raises(InvalidToken, match="no key has the id"):
        tokens.validate(token("b"))


async def test_keys_that_cannot_be_read_at_the_start_are_an_error(site: Site) -> None:
    site.answer = page(b"<html>")
    with pytest.raises(SettingError, match="neither a JWKS document"):
        await validator(site.url).read()


async def test_a_failure_keeps_the_old_keys_and_is_logged_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.answer = page(key_set("a"))
    tokens = validator(site.url, refresh_ms=1)
    await tokens.read()
    failed = 0

    def fail(handler: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal failed
        failed += 1
        page(b"", 503)(handler)

    site.answer = fail
    async with following(tokens):
        await until(lambda: failed > 3, "the keys are read again")
        assert tokens.validate(token("a")).user == "alice"
        assert [r.levelname for r in caplog.records].count("ERROR") == 1
        assert "the old keys stay" in caplog.text

        site.answer = page(key_set("b"))
        await until(lambda: tokens.keys is not None and "b" in tokens.keys.keys, "new keys")
    assert tokens.validate(token("b")).user == "alice"


async def test_a_token_with_an_unknown_key_has_the_keys_read_soon_but_seldom(site: Site) -> None:
    read = 0

    def count(handler: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal read
        read += 1
        page(key_set(*("ab" if read > 1 else "a")))(handler)

    site.answer = count
    tokens = validator(site.url)
    now = [0]
    tokens.monotonic_ms = lambda: now[0]
    await tokens.read()
    async with following(tokens):
        with pytest.raises(InvalidToken):
            tokens.validate(token("b"))
        await until(lambda: tokens.keys is not None and "b" in tokens.keys.keys, "new keys")
        assert tokens.validate(token("b")).user == "alice"

        # Anybody can name keys that are not there.
        tokens.keys = attrs.evolve(tokens.keys, keys={"a": tokens.keys.keys["a"]})
        for now[0] in (1, HASTE_PAUSE_MS - 1):
            with pytest.raises(InvalidToken):
                tokens.validate(token("b"))
            assert not tokens._is_wanted.is_set()
        now[0] = HASTE_PAUSE_MS
        with pytest.raises(InvalidToken):
            tokens.validate(token("b"))
        await until(lambda: read == 3, "the keys are read again")


@contextlib.asynccontextmanager
async def following(tokens: TokenValidator) -> AsyncIterator[None]:
    task = asyncio.create_task(tokens.follow())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
