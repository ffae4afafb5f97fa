"""SCRAM against the vectors of the RFCs, and both sides against each other."""

from __future__ import annotations

import attrs
import pytest

from protocol.sasl.exchange import Challenge, LoggedIn, LoginRefused, ServerExchange, ServerRefused
from protocol.sasl.plain import OTHER_AUTHORIZATION_ID
from protocol.sasl.scram import (
    MAX_FIRST_BYTES,
    SHA_256,
    SHA_512,
    BadCredential,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_of,
    nonce_of,
    parse_credential,
    unknown_credential,
)


@attrs.frozen
class Vector:
    """A whole login, as an RFC or another implementation has it."""

    mechanism: ScramMechanism
    user: str
    password: str
    client_nonce: str
    server_nonce: str
    salt: bytes
    iterations: int
    client_first: str
    client_proof: str
    server_proof: str
    stored_key: str
    server_key: str

    @property
    def credential(self) -> ScramCredential:
        return stored(self.mechanism, self.password, self.salt, self.iterations)

    def client(self) -> ScramClient:
        return ScramClient(self.mechanism, self.user, self.password, self.client_nonce)

    def server(self) -> ScramServer:
        return ScramServer(self.mechanism, lambda user: self.credential, self.server_nonce)


def stored(
    mechanism: ScramMechanism, password: str, salt: bytes = b"salt", iterations: int = 4096
) -> ScramCredential:
    salted = mechanism.salt_password(password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


RFC_7677 = Vector(
    SHA_256,
    "user",
    "pencil",
    "rOprNGfwEbeRWgbNEkqO",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    b"[m\x99h\x9d\x12\x35\x8e\xec\xa0K\x14\x126\xfa\x81",
    4096,
    "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=",
    "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
)
SHA_512_OF_IT = attrs.evolve(
    RFC_7677,
    mechanism=SHA_512,
    client_proof="gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwn"
    "YPJQ==",
    server_proof="ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7"
    "N7Zw==",
    stored_key="6AAub3065EYRmyFpM2RNwqK+eGnrkYuEWbXn19LsEmBqzu8QaCXNc1FwpnX9NhH2hK/60dzj9DoO5DvVkOHb"
    "vg==",
    server_key="jZHbYjC1aHh0/hKbxyBuGFjDrgjgKTT1esA7awWiKcRZ0o/0b1yWEebBeSVkkCFewf91nLDfKF24mvD5nmE6"
    "rA==",
)
ESCAPED = Vector(
    SHA_256,
    "a=b,c",
    "pÄss wörd",
    "fyko+d2lbbFgONRv9qkxdawL",
    "3rfcNHYJY1ZVvWVs7j",
    b"salt1234",
    8192,
    "n,,n=a=3Db=2Cc,r=fyko+d2lbbFgONRv9qkxdawL",
    "QBhAp0SiOJ9J0QHrZOURIU//oj+JBjvNt5jk0qix/6g=",
    "KvjpaPzyqRFI2UFb6Tt4stjQ+5taxrrl2DaJLpPdHcY=",
    "xoKb33AUVxznpymC4tA6bIKJriIsXlurW68pVDfRtE8=",
    "wkHc9DkAKs+IKCFSUI7m4wn2FwI6WvHPaSXqLpqZy7k=",
)
VECTORS = pytest.mark.parametrize("vector", [RFC_7677, SHA_512_OF_IT, ESCAPED])


def challenge_of(server: ServerExchange, token: bytes | str) -> Challenge:
    step = server.receive(token.encode() if isinstance(token, str) else token)
    assert isinstance(step, Challenge)
    return step


def log_in(client: ScramClient, server: ScramServer) -> LoggedIn:
    challenge = challenge_of(server, client.begin())
    proof = client.receive(challenge.token)
    assert proof is not None
    end = challenge.then.receive(proof)
    assert isinstance(end, LoggedIn)
    assert client.receive(end.token) is None
    return end


# ---- vectors


@VECTORS
def test_the_client_sends_the_messages_of_the_vector(vector: Vector) -> None:
    client = vector.client()
    assert client.begin().decode() == vector.client_first
    challenge = challenge_of(vector.server(), vector.client_first)
    proof = client.receive(challenge.token)
    assert proof is not None
    nonce = vector.client_nonce + vector.server_nonce
    assert proof.decode() == f"c=biws,r={nonce},p={vector.client_proof}"
    assert client.receive(f"v={vector.server_proof}".encode()) is None


@VECTORS
def test_the_server_takes_the_proof_of_the_vector_and_proves_itself(vector: Vector) -> None:
    challenge = challenge_of(vector.server(), vector.client_first)
    nonce = vector.client_nonce + vector.server_nonce
    end = challenge.then.receive(f"c=biws,r={nonce},p={vector.client_proof}".encode())
    assert end == LoggedIn(vector.user, f"v={vector.server_proof}".encode())


@VECTORS
def test_a_credential_has_the_keys_of_the_vector_and_is_read_as_written(vector: Vector) -> None:
    text = vector.credential.as_text()
    assert f",stored_key={vector.stored_key},server_key={vector.server_key}," in text
    assert parse_credential(text) == vector.credential
    assert parse_credential(",".join(reversed(text.split(",")))) == vector.credential


def test_the_first_vector_is_the_text_of_rfc_7677() -> None:
    challenge = challenge_of(RFC_7677.server(), RFC_7677.client_first)
    assert challenge.token == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )


# ---- the server


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_names_and_passwords_of_any_characters_log_in(mechanism: ScramMechanism) -> None:
    for user in ("special user= test,scram", "Zoë", "=2C", "=3D2C", "a=b"):
        credential = stored(mechanism, "pä=,\\ ß")
        server = ScramServer(mechanism, {user: credential}.__getitem__, "server")
        assert log_in(ScramClient(mechanism, user, "pä=,\\ ß", "client"), server).user == user


def test_a_wrong_password_and_an_unknown_user_are_refused_alike() -> None:
    unknown = unknown_credential(SHA_256, b"secret", "ghost", 4096)
    refusals = []
    for credential in (stored(SHA_256, "right"), unknown):
        server = ScramServer(SHA_256, lambda user, found=credential: found, "server")
        with pytest.raises(LoginRefused) as refused:
            log_in(ScramClient(SHA_256, "ghost", "wrong", "client"), server)
        refusals.append((refused.value.message, refused.value.detail))
    assert refusals[0] == refusals[1] == (None, "invalid credentials")


def test_the_salt_of_an_unknown_user_is_its_own_and_stays() -> None:
    salts = {
        user: unknown_credential(SHA_256, b"secret", user, 4096).salt for user in ("a", "b", "c")
    }
    assert len(set(salts.values())) == 3
    assert unknown_credential(SHA_256, b"secret", "a", 4096).salt == salts["a"]
    assert unknown_credential(SHA_256, b"another", "a", 4096).salt != salts["a"]
    # As long as a salt that Kafka's tools make: 130 bits in base 36.
    assert {len(salt) for salt in salts.values()} <= {24, 25, 26}


@pytest.mark.parametrize(
    ("nonce", "is_accepted"),
    [
        ("client" + "server", True),
        ("client" + "client" + "server", True),  # librdkafka before 2.6.1
        ("client", False),
        ("server", False),
        ("other" + "client" + "server", False),
        ("client" + "server" + "x", False),
        ("client" + "client" + "client" + "server", False),
    ],
)
def test_the_final_nonce_is_the_servers_or_has_the_clients_before_it(
    nonce: str, is_accepted: bool
) -> None:
    credential = stored(SHA_256, "pencil")
    challenge = challenge_of(
        ScramServer(SHA_256, lambda user: credential, "server"), "n,,n=u,r=client"
    )
    proof = proof_for(SHA_256, credential, "pencil", challenge.token, "n=u,r=client", nonce)
    if is_accepted:
        assert isinstance(challenge.then.receive(proof), LoggedIn)
    else:
        with pytest.raises(LoginRefused, match="of another login"):
            challenge.then.receive(proof)


def test_a_recorded_proof_is_of_no_use_in_another_login() -> None:
    credential = stored(SHA_256, "pencil")
    client = ScramClient(SHA_256, "u", "pencil", "client")
    recorded = client.receive(
        challenge_of(ScramServer(SHA_256, lambda user: credential, "one"), client.begin()).token
    )
    assert recorded is not None
    later = challenge_of(ScramServer(SHA_256, lambda user: credential, "two"), client.begin())
    with pytest.raises(LoginRefused):
        later.then.receive(recorded)


def test_a_proof_for_other_attributes_than_were_sent_is_refused() -> None:
    credential = stored(SHA_256, "pencil")
    challenge = challenge_of(
        ScramServer(SHA_256, lambda user: credential, "server"), "n,,n=u,r=client"
    )
    proof = proof_for(
        SHA_256, credential, "pencil", challenge.token, "n=u,r=client", "clientserver", "n,a=u,"
    )
    with pytest.raises(LoginRefused, match="of another channel"):
        challenge.then.receive(proof)


def test_an_authorization_id_may_only_repeat_the_name() -> None:
    credential = stored(SHA_256, "pencil")
    server = ScramServer(SHA_256, lambda user: credential, "server")
    assert challenge_of(server, "n,a=u=2C,n=u=2C,r=client")
    with pytest.raises(LoginRefused) as refused:
        server.receive(b"n,a=admin,n=u,r=client")
    assert refused.value.message == OTHER_AUTHORIZATION_ID


def test_unknown_extensions_are_ignored_and_tokens_of_delegation_refused() -> None:
    credential = stored(SHA_256, "pencil")
    server = ScramServer(SHA_256, lambda user: credential, "server")
    assert challenge_of(server, "n,,n=u,r=client,foo=bar,x=1")
    with pytest.raises(LoginRefused, match="delegation tokens are not served"):
        server.receive(b"n,,n=u,r=client,tokenauth=true")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0\xff\xfe",
        b"n,,n=,r=x",
        b"y,,n=u,r=x",
        b"p=tls-unique,,n=u,r=x",
        b"n,,n=u",
        b"n,,n=u=2,r=x",
        b"n,,n=u,r=",
        b"n,,n=u,r=a b",
        b"n,,n=u,r=x,1=y",
        b"n,,n=u\0,r=x",
    ],
)
def test_a_malformed_first_message_is_refused(token: bytes) -> None:
    server = ScramServer(SHA_256, lambda user: stored(SHA_256, "pencil"), "server")
    with pytest.raises(LoginRefused) as refused:
        server.receive(token)
    assert refused.value.message is None


def test_a_first_message_is_bounded_because_the_server_keeps_it() -> None:
    server = ScramServer(SHA_256, lambda user: stored(SHA_256, "pencil"), "server")
    longest = b"n,,n=u,r=" + b"x" * (MAX_FIRST_BYTES - len(b"n,,n=u,r="))
    assert isinstance(server.receive(longest), Challenge)
    with pytest.raises(LoginRefused, match="has 4097 bytes") as refused:
        server.receive(longest + b"x")
    assert refused.value.message is None


@pytest.mark.parametrize(
    "token",
    [b"", b"\xff", b"c=biws,r=clientserver", b"c=biws,r=clientserver,p=", b"r=clientserver,p=AA=="],
)
def test_a_malformed_final_message_is_refused(token: bytes) -> None:
    server = ScramServer(SHA_256, lambda user: stored(SHA_256, "pencil"), "server")
    with pytest.raises(LoginRefused) as refused:
        challenge_of(server, "n,,n=u,r=client").then.receive(token)
    assert refused.value.message is None


def test_a_proof_of_another_size_is_refused() -> None:
    server = ScramServer(SHA_256, lambda user: stored(SHA_256, "pencil"), "server")
    with pytest.raises(LoginRefused, match="size of a key"):
        challenge_of(server, "n,,n=u,r=client").then.receive(b"c=biws,r=clientserver,p=AAAA")


# ---- the client


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("", "not SCRAM"),
        ("r=other,s=c2FsdA==,i=4096", "does not begin"),
        ("r=client,s=c2FsdA==,i=4096", "does not begin"),
        ("r=clientserver,s=c2FsdA==,i=4095", "4095 iterations"),
        ("r=clientserver,s=c2FsdA==,i=1000001", "1000001 iterations"),
        ("r=clientserver,s=c2FsdA==,i=99999999999", "not SCRAM"),
        ("r=clientserver,s=c2F,i=4096", "not base64"),
    ],
)
def test_the_client_refuses_a_challenge(challenge: str, reason: str) -> None:
    client = ScramClient(SHA_256, "u", "pencil", "client")
    with pytest.raises(ServerRefused, match=reason):
        client.receive(challenge.encode())


@pytest.mark.parametrize(
    ("final", "reason"),
    [("v=AAAA", "does not know the password"), ("e=other-error", "other-error"), ("", "not SCRAM")],
)
def test_the_client_refuses_a_server_that_does_not_know_the_password(
    final: str, reason: str
) -> None:
    client = ScramClient(SHA_256, "u", "pencil", "client")
    client.receive(b"r=clientserver,s=c2FsdA==,i=4096")
    with pytest.raises(ServerRefused, match=reason):
        client.receive(final.encode())


# ---- what must not be seen


def test_no_repr_shows_a_password_or_a_key() -> None:
    vector = RFC_7677
    client = vector.client()
    challenge = challenge_of(vector.server(), client.begin())
    client.receive(challenge.token)
    for value in (client, vector.credential, challenge.then):
        assert "pencil" not in repr(value)
        assert repr(vector.credential.stored_key) not in repr(value)


@pytest.mark.parametrize(
    "text",
    ["", "salt=YQ==", "salt=YQ==,stored_key=!,server_key=YQ==,iterations=4096", "a=b,c=d,e=f,g=h"],
)
def test_a_bad_credential_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadCredential) as error:
        parse_credential(text)
    assert "YQ" not in str(error.value)


def test_a_nonce_has_130_bits_in_base_36() -> None:
    assert nonce_of(0) == "0"
    assert nonce_of(36 * 36 + 35) == "10z"
    assert nonce_of(1 << 130) == "0"
    assert int(nonce_of((1 << 200) - 1), 36) == (1 << 130) - 1


def proof_for(
    mechanism: ScramMechanism,
    credential: ScramCredential,
    password: str,
    challenge: bytes,
    bare: str,
    nonce: str,
    gs2: str = "n,,",
) -> bytes:
    """The final message of a client that knows the password and names this nonce."""
    from base64 import b64encode

    salted = mechanism.salt_password(password, credential.salt, credential.iterations)
    client_key = mechanism.hmac(salted, b"Client Key")
    unproved = f"c={b64encode(gs2.encode()).decode()},r={nonce}"
    signed = f"{bare},{challenge.decode()},{unproved}".encode()
    signature = mechanism.hmac(mechanism.hash(client_key), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unproved},p={b64encode(proof).decode()}".encode()
