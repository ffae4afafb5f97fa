"""What each frame means in each state of a login: Kafka's order, errors and silences."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from broker.authentication.gate import (
    MAX_ELEMENTS,
    MAX_LIFETIME_MS,
    MAX_QUESTIONS,
    REAUTHENTICATION_PAUSE_MS,
    AwaitingHandshake,
    AwaitingToken,
    Decision,
    Gate,
    Open,
    Refuse,
    Respond,
    Serve,
    State,
    decide,
)
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.header import encode_request, read_response
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.primitives import uvarint
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256, Challenge, LoggedIn
from protocol.sasl.oauthbearer import (
    ACKNOWLEDGED,
    AcceptedToken,
    InvalidToken,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenRules,
    check_claims,
)
from protocol.sasl.plain import PlainServer
from protocol.sasl.scram import (
    SHA_256,
    ScramClient,
    ScramServer,
    credential_of,
    unknown_credential,
)

ALICE = b"\0alice\0secret"
BOB = b"\0bob\0secret"
WRONG = b"\0alice\0wrong"
TOKEN_EXPIRES_MS = 1_000_000

CREDENTIAL = credential_of(SHA_256, SHA_256.salt_password("secret", b"salt", 4096), b"salt", 4096)


def find(user: str) -> Any:
    return CREDENTIAL if user == "alice" else unknown_credential(SHA_256, b"key", user, 4096)


def validate(token: str) -> AcceptedToken:
    if token != "good":
        raise InvalidToken("not the good one")
    return AcceptedToken("alice", TOKEN_EXPIRES_MS)


GATE = Gate(
    {
        PLAIN: lambda: PlainServer({"alice": "secret", "bob": "secret"}),
        SCRAM_SHA_256: lambda: ScramServer(SHA_256, find, "server"),
        OAUTHBEARER: lambda: OAuthBearerServer(validate),
    }
)
LIMITED = attrs.evolve(GATE, max_reauth_ms={PLAIN: 5000, OAUTHBEARER: 5000})


@attrs.define(eq=False)
class Client:
    """A connection: what it has sent so far is in its state."""

    gate: Gate = GATE
    state: State = attrs.field(factory=AwaitingHandshake)
    now_ms: int = 0
    monotonic_ms: int = 100

    def send(self, frame: bytes) -> Decision:
        decision = decide(self.gate, self.state, memoryview(frame), self.now_ms, self.monotonic_ms)
        if not isinstance(decision, Refuse):
            self.state = decision.state
        return decision

    def ask(self, request: Any, version: int) -> Decision:
        return self.send(frame_of(request, version))

    def shake_hands(self, mechanism: str = PLAIN, version: int = 1) -> Any:
        decision = self.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        return response_of(ApiKey.SASL_HANDSHAKE, version, decision)

    def authenticate(self, token: bytes, version: int = 1) -> Any:
        decision = self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        return response_of(ApiKey.SASL_AUTHENTICATE, version, decision)

    def log_in(self, token: bytes = ALICE) -> Any:
        assert self.shake_hands().error_code == 0
        return self.authenticate(token)


def frame_of(request: Any, version: int, key: ApiKey | None = None) -> bytes:
    from protocol.api import key_of

    return encode_request(key or key_of(request), version, 7, "c", request)[4:]


def response_of(key: ApiKey, version: int, decision: Decision) -> Any:
    frame = decision.frame if isinstance(decision, Respond) else None
    if isinstance(decision, Refuse):
        assert decision.is_delayed, decision
        frame = decision.response
    assert frame is not None, decision
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = read_response(key, version, frame[4:])
    assert correlation_id == 7
    return response


def is_closed_silently(decision: Decision) -> bool:
    """Whether the connection is closed at once, with nothing sent."""
    return isinstance(decision, Refuse) and not decision.response and not decision.is_delayed


METADATA = frame_of(MetadataRequest(topics=()), 1)
VERSIONS = frame_of(ApiVersionsRequest(), 0)


# ---- bytes, as the protocol has them

HANDSHAKE_V1 = bytes.fromhex("0011 0001 00000001 0001 63 0005 504c41494e")
AUTHENTICATE_V1 = bytes.fromhex("0024 0001 00000002 0001 63 00000009 00 616c696365 00 7077")
AUTHENTICATE_V2 = bytes.fromhex("0024 0002 00000002 0001 63 00 0a 00616c696365007077 00")


def test_a_login_has_the_bytes_of_kafka() -> None:
    client = Client(Gate({PLAIN: lambda: PlainServer({"alice": "pw"})}))
    handshake = client.send(HANDSHAKE_V1)
    assert isinstance(handshake, Respond)
    assert handshake.frame.hex(" ", 4) == bytes.fromhex(
        "00000011 00000001 0000 00000001 0005 504c41494e"
    ).hex(" ", 4)
    before = client.state
    accepted = client.send(AUTHENTICATE_V1)
    assert isinstance(accepted, Respond)
    assert accepted.frame == bytes.fromhex("00000014 00000002 0000 ffff 00000000 0000000000000000")
    client.state = before
    accepted = client.send(AUTHENTICATE_V2)
    assert isinstance(accepted, Respond)
    assert accepted.frame == bytes.fromhex("00000012 00000002 00 0000 00 01 0000000000000000 00")


def test_a_refused_login_has_the_bytes_of_kafka() -> None:
    client = Client(Gate({PLAIN: lambda: PlainServer({"alice": "other"})}))
    client.send(HANDSHAKE_V1)
    refused = client.send(AUTHENTICATE_V1)
    assert isinstance(refused, Refuse)
    assert refused.is_delayed
    assert refused.response == (
        bytes.fromhex("00000047 00000002 003a 0033")
        + b"Authentication failed: Invalid username or password"
        + bytes.fromhex("00000000 0000000000000000")
    )


def test_tokens_after_version_0_have_no_header() -> None:
    client = Client()
    assert client.shake_hands(version=0).error_code == 0
    accepted = client.send(ALICE)
    assert accepted == Respond(Open(PLAIN, "alice"), bytes(4))
    assert client.send(METADATA) == Serve(Open(PLAIN, "alice"))


def test_scram_after_version_0_is_four_tokens() -> None:
    client = Client()
    client.shake_hands(SCRAM_SHA_256, version=0)
    peer = ScramClient(SHA_256, "alice", "secret", "client")
    challenge = client.send(peer.begin())
    assert isinstance(challenge, Respond)
    answer = peer.receive(challenge.frame[4:])
    assert answer is not None
    end = client.send(answer)
    assert isinstance(end, Respond)
    assert peer.receive(end.frame[4:]) is None
    assert end.state == Open(SCRAM_SHA_256, "alice")


def test_a_refusal_after_version_0_is_late_and_silent() -> None:
    client = Client()
    client.shake_hands(version=0)
    refused = client.send(WRONG)
    assert isinstance(refused, Refuse)
    assert (refused.response, refused.is_delayed) == (b"", True)


# ---- before the handshake


def test_versions_are_served_once_before_the_login() -> None:
    client = Client()
    assert client.send(VERSIONS) == Serve(AwaitingHandshake(may_ask_versions=False, questions=1))
    assert is_closed_silently(client.send(VERSIONS))
    assert client.log_in().error_code == 0
    assert isinstance(client.send(VERSIONS), Serve)


@pytest.mark.parametrize(
    "question",
    [
        frame_of(ApiVersionsRequest(), 0).replace(b"\x00\x12\x00\x00", b"\x00\x12\x00\x63", 1),
        frame_of(ApiVersionsRequest(client_software_name="   ", client_software_version="1"), 3),
    ],
)
def test_versions_may_be_asked_for_again_after_a_refusal(question: bytes) -> None:
    client = Client()
    assert client.send(question) == Serve(AwaitingHandshake(questions=1))
    assert client.send(VERSIONS) == Serve(AwaitingHandshake(may_ask_versions=False, questions=2))
    assert client.shake_hands().error_code == 0


@pytest.mark.fault("security-3")
def test_versions_may_not_be_asked_for_without_end_under_an_illegal_name() -> None:
    client = Client()
    illegal = ApiVersionsRequest(client_software_name="   ", client_software_version="1")
    for _ in range(MAX_QUESTIONS):
        assert isinstance(client.send(frame_of(illegal, 3)), Serve)

    assert is_closed_silently(client.send(frame_of(illegal, 3)))


@pytest.mark.fault("security-3")
@pytest.mark.parametrize("where", ["header", "body"])
def test_tagged_fields_before_the_login_are_few(where: str) -> None:
    """A frame of 512 KiB has room for 260,000 of them."""
    named = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    whole = frame_of(named, 3)
    body = b"\x02a\x021"
    head = whole[: len(whole) - len(body) - 2]
    tags = uvarint(MAX_ELEMENTS + 1) + b"\x09\x00" * (MAX_ELEMENTS + 1)
    parts = (tags, body, b"\0") if where == "header" else (b"\0", body, tags)

    client = Client()

    assert is_closed_silently(client.send(head + b"".join(parts)))


@pytest.mark.parametrize(
    "frame",
    [
        METADATA,
        frame_of(ListGroupsRequest(), 0),
        frame_of(SaslAuthenticateRequest(auth_bytes=ALICE), 1),
        frame_of(SaslHandshakeRequest(mechanism=PLAIN), 1).replace(b"\0\x11\0\1", b"\0\x11\0\2", 1),
        frame_of(SaslHandshakeRequest(mechanism=PLAIN), 1).replace(
            b"\0\x11\0\1", b"\0\x11\x7f\xff", 1
        ),
        frame_of(SaslHandshakeRequest(mechanism=PLAIN), 1)[:-1],
        b"\x03\xe8" + bytes(1000),
        b"\0",
        b"",
    ],
)
def test_anything_else_before_the_handshake_closes_the_connection_silently(frame: bytes) -> None:
    assert is_closed_silently(Client().send(frame))


def test_a_mechanism_that_is_not_enabled_is_refused_late_with_those_that_are() -> None:
    for mechanism in ("GSSAPI", "plain", "", "SCRAM-SHA-512"):
        response = Client().shake_hands(mechanism)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert set(response.mechanisms) == {PLAIN, SCRAM_SHA_256, OAUTHBEARER}


def test_a_long_name_of_a_mechanism_does_not_fill_the_log() -> None:
    decision = Client().ask(SaslHandshakeRequest(mechanism="\0" * 30_000), 1)
    assert isinstance(decision, Refuse)
    assert len(decision.reason) < 400


# ---- during the login


def test_another_request_during_the_login_is_refused_in_its_own_words() -> None:
    client = Client()
    client.shake_hands()
    response = response_of(ApiKey.LIST_GROUPS, 0, client.ask(ListGroupsRequest(), 0))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_request_of_many_names_during_the_login_is_not_read() -> None:
    """Nobody has said yet who sends it, and it costs a microsecond a name."""
    client = Client()
    client.shake_hands()
    assert is_closed_silently(
        client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 1001), 1)
    )


def test_versions_after_the_handshake_close_the_connection_silently() -> None:
    client = Client()
    client.shake_hands()
    assert is_closed_silently(client.send(VERSIONS))


@pytest.mark.parametrize(
    "frame",
    [
        bytes(9),
        b"\x7f" * 1024,
        frame_of(SaslAuthenticateRequest(auth_bytes=ALICE), 1).replace(
            b"\0\x24\0\1", b"\0\x24\0\3", 1
        ),
        frame_of(SaslAuthenticateRequest(auth_bytes=ALICE), 1)[:-3],
    ],
)
def test_what_cannot_be_read_during_the_login_closes_the_connection(frame: bytes) -> None:
    client = Client()
    client.shake_hands()
    assert is_closed_silently(client.send(frame))


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [(SCRAM_SHA_256, b"\xff\0"), (OAUTHBEARER, b"nonsense"), (PLAIN, b"\0\xff\0\xff")],
)
def test_a_token_that_cannot_be_read_gets_the_fixed_text(mechanism: str, token: bytes) -> None:
    client = Client()
    client.shake_hands(mechanism)
    response = client.authenticate(token)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
    assert (bytes(response.auth_bytes), response.session_lifetime_ms) == (b"", 0)


def scram_refusal(user: str, password: str) -> Refuse:
    client = Client()
    client.shake_hands(SCRAM_SHA_256)
    peer = ScramClient(SHA_256, user, password, "client")
    challenge = client.authenticate(peer.begin())
    assert challenge.error_code == 0
    answer = peer.receive(bytes(challenge.auth_bytes))
    assert answer is not None
    refused = client.ask(SaslAuthenticateRequest(auth_bytes=answer), 1)
    assert isinstance(refused, Refuse)
    return refused


def test_nothing_tells_an_unknown_user_from_a_wrong_password() -> None:
    assert scram_refusal("alice", "wrong") == scram_refusal("nobody", "wrong")
    refusals = []
    for token in (WRONG, b"\0nobody\0wrong"):
        client = Client()
        client.shake_hands()
        refusals.append(client.ask(SaslAuthenticateRequest(auth_bytes=token), 1))
    assert refusals[0] == refusals[1]


def test_an_invalid_token_is_refused_when_the_client_has_acknowledged_that() -> None:
    client = Client()
    client.shake_hands(OAUTHBEARER)
    challenge = client.authenticate(OAuthBearerClient("bad").begin())
    assert (challenge.error_code, bytes(challenge.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    response = client.authenticate(ACKNOWLEDGED)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == '{"status":"invalid_token"}'


def test_a_client_that_takes_the_error_of_a_token_for_success_is_refused() -> None:
    """aiokafka goes on with its next request."""
    client = Client()
    client.shake_hands(OAUTHBEARER)
    client.authenticate(OAuthBearerClient("bad").begin())
    assert response_of(ApiKey.LIST_GROUPS, 0, client.ask(ListGroupsRequest(), 0)).error_code == 34


# ---- sessions that end


def test_a_session_without_end_serves_all_requests() -> None:
    client = Client()
    assert client.log_in().session_lifetime_ms == 0
    client.monotonic_ms += 10**9
    assert client.send(METADATA) == Serve(Open(PLAIN, "alice"))
    assert client.ask(SaslHandshakeRequest(mechanism=PLAIN), 1) == Serve(Open(PLAIN, "alice"))


def test_a_session_lasts_as_long_as_the_limit_or_the_token_says() -> None:
    assert Client(LIMITED).log_in().session_lifetime_ms == 5000
    for gate, now_ms, lifetime_ms in (
        (GATE, 0, TOKEN_EXPIRES_MS),
        (LIMITED, 0, 5000),
        (LIMITED, TOKEN_EXPIRES_MS - 3000, 3000),
        (LIMITED, TOKEN_EXPIRES_MS + 1, 0),
    ):
        client = Client(gate, now_ms=now_ms)
        client.shake_hands(OAUTHBEARER)
        response = client.authenticate(OAuthBearerClient("good").begin())
        assert response.session_lifetime_ms == lifetime_ms
        assert client.state == Open(OAUTHBEARER, "alice", ends_ms=100 + lifetime_ms)


@pytest.mark.fault("security-8")
@pytest.mark.parametrize("exp", [9.3e15, 1e300, 10**100])
def test_a_token_that_never_expires_makes_a_very_long_session(exp: float) -> None:
    def accept(token: str) -> AcceptedToken:
        return check_claims({"sub": "alice", "exp": exp}, TokenRules(), now_ms=0)

    client = Client(Gate({OAUTHBEARER: lambda: OAuthBearerServer(accept)}))
    client.shake_hands(OAUTHBEARER)
    response = client.authenticate(OAuthBearerClient("good").begin())
    assert response.session_lifetime_ms == MAX_LIFETIME_MS
    assert client.state == Open(OAUTHBEARER, "alice", ends_ms=100 + MAX_LIFETIME_MS)


@pytest.mark.parametrize("version", [0, 1])
def test_a_request_after_the_end_of_the_session_closes_the_connection(version: int) -> None:
    client = Client(LIMITED)
    client.shake_hands(version=version)
    client.send(ALICE if version == 0 else frame_of(SaslAuthenticateRequest(auth_bytes=ALICE), 0))
    client.monotonic_ms += 4999
    assert isinstance(client.send(METADATA), Serve)
    client.monotonic_ms += 1
    refused = client.send(METADATA)
    assert is_closed_silently(refused)
    assert isinstance(refused, Refuse)
    assert refused.is_expiry


@pytest.mark.parametrize("waited_ms", [10, 4500, 9000])
def test_a_login_again_prolongs_the_session_also_after_its_end(waited_ms: int) -> None:
    client = Client(LIMITED)
    client.log_in()
    client.monotonic_ms += waited_ms
    response = client.log_in()
    assert (response.error_code, response.session_lifetime_ms) == (0, 5000)
    assert client.state == Open(PLAIN, "alice", 5100 + waited_ms, 100 + waited_ms)
    assert isinstance(client.send(METADATA), Serve)


def test_many_logins_again_follow_each_other() -> None:
    client = Client(LIMITED)
    client.log_in()
    for _ in range(5):
        client.monotonic_ms += 4600
        assert isinstance(client.send(METADATA), Serve)
        assert client.log_in().error_code == 0


def test_a_login_again_within_a_second_is_a_request() -> None:
    client = Client(LIMITED)
    client.log_in()
    client.log_in()
    client.monotonic_ms += REAUTHENTICATION_PAUSE_MS - 1
    assert isinstance(client.ask(SaslHandshakeRequest(mechanism=PLAIN), 1), Serve)
    client.monotonic_ms += 1
    assert client.shake_hands().error_code == 0


def test_a_login_again_as_another_user_is_refused() -> None:
    client = Client(LIMITED)
    client.log_in()
    response = client.log_in(BOB)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )


def test_a_login_again_by_another_mechanism_is_refused_with_its_first_token() -> None:
    client = Client(LIMITED)
    client.log_in()
    assert client.shake_hands(SCRAM_SHA_256).error_code == 0
    response = client.authenticate(b"n,,n=alice,r=client")
    assert response.error_message == (
        "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for "
        "re-authentication of mechanism 'PLAIN'"
    )


def test_a_failed_login_again_says_so() -> None:
    client = Client(attrs.evolve(LIMITED, max_reauth_ms={SCRAM_SHA_256: 5000}))
    client.state = Open(SCRAM_SHA_256, "alice", ends_ms=5000)
    client.shake_hands(SCRAM_SHA_256)
    response = client.authenticate(b"nonsense")
    assert "failed during re-authentication due to" in response.error_message


def test_no_request_is_served_during_a_login_again() -> None:
    client = Client(LIMITED)
    client.log_in()
    client.shake_hands()
    response = response_of(ApiKey.LIST_GROUPS, 0, client.ask(ListGroupsRequest(), 0))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_frame_that_is_no_request_is_left_to_the_dispatcher() -> None:
    client = Client(LIMITED)
    client.log_in()
    assert isinstance(client.send(b"\0"), Serve)


# ---- what must not be seen


def test_no_state_shows_a_password() -> None:
    for token in (b"", WRONG):
        client = Client(LIMITED)
        client.shake_hands()
        assert "secret" not in repr(client.state)
        refused = client.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
        assert "wrong" not in repr(refused).replace("wrong number", "")
        assert "alice" not in repr(refused)


def test_the_exchanges_are_values() -> None:
    """A step changes nothing: the same token in the same state gives the same decision."""
    client = Client()
    client.shake_hands(SCRAM_SHA_256)
    state = client.state
    assert isinstance(state, AwaitingToken)
    first = state.exchange.receive(b"n,,n=alice,r=client")
    assert isinstance(first, Challenge)
    assert first == state.exchange.receive(b"n,,n=alice,r=client")
    assert not isinstance(first, LoggedIn)
