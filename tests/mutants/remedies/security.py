"""Remedies against strangers: logins, TLS, ACLs, quotas, ZooKeeper's ACLs, bounds."""

from tests.mutants.remedy import Remedy

GATE = "tests/broker/authentication/test_gate.py"
SASL_CONNECTION = "tests/broker/authentication/test_sasl_connection.py"
SCRAM = "tests/protocol/sasl/test_scram.py"
TRANSPORT = "tests/protocol/tls/test_transport.py"
KEYS = "tests/broker/authentication/test_key_document.py"
DISPATCH = "tests/broker/network/test_dispatch.py"

TESTS: dict[str, str] = {
    "broker.authentication.gate": GATE,
    "broker.authentication.sasl_session": SASL_CONNECTION,
    "broker.authentication.key_document": KEYS,
    "broker.authentication.token_validator": KEYS,
    "broker.authentication.scram_users": "tests/broker/authentication/test_scram_users.py",
    "broker.authorization.acl_index": "tests/broker/authorization/test_acl_index.py",
    "broker.authorization.acl_authorizer": "tests/broker/authorization/test_acl_authorizer.py",
    "broker.network.connection": SASL_CONNECTION,
    "broker.network.dispatch": DISPATCH,
    "protocol.log_lines": "tests/protocol/test_log_lines.py",
    "broker.quotas.charging": "tests/broker/quotas/test_charging.py",
    "broker.quotas.client_quotas": "tests/broker/quotas/test_client_quotas.py",
    "broker.process.rate": "tests/broker/process/test_rate.py",
    "protocol.encoding": "tests/protocol/test_bounds.py",
    "protocol.sasl.plain": "tests/protocol/sasl/test_plain.py",
    "protocol.sasl.scram": SCRAM,
    "protocol.sasl.oauthbearer": "tests/protocol/sasl/test_oauthbearer.py",
    "protocol.sasl.signed_tokens": "tests/protocol/sasl/test_oauthbearer.py",
    "protocol.tls.handshakes": "tests/protocol/tls/test_handshakes.py",
    "protocol.tls.transport": TRANSPORT,
    "zk.acls": "tests/zk/session/test_login.py",
    "zk.login": "tests/broker/kbroker/test_zookeeper_access.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    # --- the gate of logins -----------------------------------------------------------------------
    Remedy(
        "X1",
        "versions are told once before the login",
        "broker.authentication.gate:_decide_new",
        "not state.may_ask_versions",
        "False",
    ),
    Remedy(
        "X1",
        "a session is renewed by its own mechanism",
        "broker.authentication.gate:_shake_hands",
        "previous is not None and previous.mechanism != mechanism",
        "False",
    ),
    Remedy(
        "X1",
        "a session is renewed by its own user",
        "broker.authentication.gate:_refuse_other_user",
        "step.user != previous.user",
        "False",
    ),
    Remedy(
        "X1",
        "after its end a session serves nothing",
        "broker.authentication.gate:_decide_open",
        "monotonic_ms >= state.ends_ms",
        "False",
    ),
    Remedy(
        "X1",
        "a session is not renewed all the time",
        "broker.authentication.gate:_decide_open",
        "key == ApiKey.SASL_HANDSHAKE and not is_early",
        "key == ApiKey.SASL_HANDSHAKE",
    ),
    Remedy(
        "X1",
        "a session ends with the first of its limits",
        "broker.authentication.gate:_lifetime_ms",
        "min(*ends, MAX_LIFETIME_MS)",
        "min(max(ends), MAX_LIFETIME_MS)",
    ),
    Remedy(
        "X1",
        "a request of many names is not read during a login",
        "broker.authentication.gate:_read_authenticate",
        "read_request(header, frame, pos, MAX_ELEMENTS)",
        "read_request(header, frame, pos)",
    ),
    Remedy(
        "X1",
        "a long word of a client does not fill the log",
        "broker.authentication.gate:_shake_hands",
        "mechanism[:MAX_SHOWN]",
        "mechanism",
    ),
    Remedy(
        "X1",
        "frames of a login have a bound of their own",
        "broker.authentication.sasl_session:SaslSession._note_state",
        "None if is_open else self.limits.max_receive_bytes",
        "None",
    ),
    Remedy(
        "X1",
        "a login that fails unexpectedly lets nobody in",
        "broker.authentication.sasl_session:SaslSession.receive",
        "Refuse('a login failed unexpectedly; the error is logged above')",
        "Serve(self._state)",
    ),
    Remedy(
        "X1",
        "until a refusal is sent nothing is read",
        "broker.network.connection:ClientConnection._end_session",
        "self._is_throttled = True",
        "pass",
    ),
    # --- mechanisms -------------------------------------------------------------------------------
    Remedy(
        "X2",
        "the proof is of this login",
        "protocol.sasl.scram:_ScramProof.receive",
        "final['nonce'] not in self.nonces",
        "False",
    ),
    Remedy(
        "X2",
        "the proof is of this channel",
        "protocol.sasl.scram:_ScramProof.receive",
        "final['channel'] != self.channel",
        "False",
    ),
    Remedy(
        "X2",
        "only the password gives the proof",
        "protocol.sasl.scram:_ScramProof.receive",
        "not hmac.compare_digest(mechanism.hash(client_key), self.credential.stored_key)",
        "False",
    ),
    Remedy(
        "X2",
        "nobody acts for another user",
        "protocol.sasl.scram:ScramServer.receive",
        "authorization_id is not None and _unescape(authorization_id) != user",
        "False",
    ),
    Remedy(
        "X2",
        "a first message that is kept has a bound",
        "protocol.sasl.scram:ScramServer.receive",
        "len(token) > MAX_FIRST_BYTES",
        "False",
    ),
    Remedy(
        "X2",
        "the server proves itself too",
        "protocol.sasl.scram:ScramClient._check_server",
        "not hmac.compare_digest(final['signature'].encode(), _encode(signature).encode())",
        "False",
    ),
    Remedy(
        "X2",
        "a server cannot have a client compute for ever",
        "protocol.sasl.scram:ScramClient._prove",
        "not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS",
        "iterations < MIN_ITERATIONS",
    ),
    Remedy(
        "X2",
        "a credential of few iterations is none",
        "broker.authentication.scram_users:ScramUsers.find",
        "credential is not None and credential.iterations >= MIN_ITERATIONS",
        "credential is not None",
    ),
    Remedy(
        "X2",
        "nobody acts for another user by PLAIN",
        "protocol.sasl.plain:PlainServer.receive",
        "authorization_id and authorization_id != user",
        "False",
    ),
    Remedy(
        "X2",
        "a key that can sign is no key to check by",
        "protocol.sasl.signed_tokens:read_keys",
        "key.key_type != 'oct'",
        "True",
    ),
    Remedy(
        "X2",
        "a token for others is refused",
        "protocol.sasl.oauthbearer:check_claims",
        "rules.audiences and not set(_words(claims, 'aud')) & set(rules.audiences)",
        "False",
    ),
    Remedy(
        "X2",
        "keys come from nowhere but https",
        "broker.authentication.key_document:_OnlyHttps.redirect_request",
        "not newurl.startswith(HTTPS)",
        "False",
    ),
    Remedy(
        "X2",
        "a document of keys has a bound",
        "broker.authentication.key_document:_read",
        "size > MAX_BYTES",
        "False",
    ),
    Remedy(
        "X2",
        "unknown keys have the document read seldom",
        "broker.authentication.token_validator:TokenValidator._hasten",
        "self._hastened_ms is None or now_ms >= self._hastened_ms + HASTE_PAUSE_MS",
        "True",
    ),
    # --- TLS --------------------------------------------------------------------------------------
    Remedy(
        "X3",
        "what TLS can no longer encrypt ends its connection alone",
        "protocol.tls.transport:TlsTransport._encrypt",
        """
            try:
                self._ssl.write(data)
            except ssl.SSLError as error:
                reason = explain(error, on_server=self._on_server)
                self._failure = ConnectionResetError(f"TLS: {reason}")
                self.abort()
                return
        """,
        "self._ssl.write(data)",
    ),
    Remedy(
        "X3",
        "a refused client gets the alert",
        "protocol.tls.transport:TlsTransport._fail",
        "self._flush()",
        "pass",
    ),
    Remedy(
        "X3",
        "a handshake ends after its time",
        "protocol.tls.transport:TlsTransport.connection_made",
        "loop.call_later(self._timeout_s, self.give_up, reason)",
        "loop.call_later(3600, self.give_up, reason)",
    ),
    Remedy(
        "X3",
        "open handshakes have a bound",
        "protocol.tls.handshakes:Handshakes.begin",
        "len(self) > self.max_at_once",
        "False",
    ),
    Remedy(
        "X3",
        "handshakes leave turns to others",
        "protocol.tls.handshakes:Handshakes._turn",
        "self.time() - began >= TURN_S",
        "False",
    ),
    # --- ACLs and quotas --------------------------------------------------------------------------
    Remedy(
        "X4",
        "one DENY outweighs all that is allowed",
        "broker.authorization.acl_index:AclPermissions.allows",
        "self.denied is not NO_NAMES and name in self.denied",
        "False",
    ),
    Remedy(
        "X4",
        "... also among many names",
        "broker.authorization.acl_index:AclPermissions.refused",
        "refused | self.denied.among(every)",
        "refused",
    ),
    Remedy(
        "X4",
        "a host counts",
        "broker.authorization.acl_index:AclIndex._patterns",
        "entry.host in (host, WILDCARD)",
        "True",
    ),
    Remedy(
        "X4",
        "a DENY of all closes what is open to all",
        "broker.authorization.acl_index:AclIndex.may_somewhere",
        "denied.has_all",
        "False",
    ),
    Remedy(
        "X4",
        "senders that are kept have a bound",
        "broker.authorization.acl_authorizer:AclAuthorizer.sender",
        "len(self._senders) >= MAX_SENDERS",
        "False",
    ),
    Remedy(
        "X4",
        "who may not act for the cluster does not pass for a broker",
        "broker.network.dispatch:Dispatcher.dispatch",
        "_is_from_broker(key, request) and self._may_be_brokers(sender, origin)",
        "_is_from_broker(key, request)",
    ),
    Remedy(
        "X5",
        "counters of clients have a bound",
        "broker.quotas.client_quotas:_use",
        "len(counters) > MAX_COUNTERS",
        "False",
    ),
    Remedy(
        "X5",
        "what is left out of a fetch does not count",
        "broker.quotas.charging:RequestBill.charge",
        "record(QuotaKind.FETCH, user, client_id, -sent, now_ms)",
        "0",
    ),
    Remedy(
        "X5",
        "a client without an id has its user's quota",
        "broker.quotas.client_quotas:_by_precedence",
        "yield ClientEntity(DEFAULT), (user, None)",
        "pass",
    ),
    Remedy(
        "X5",
        "a first value is no high rate",
        "broker.process.rate:SampledRate._measure",
        "elapsed_ms += max(missing, 0) * self.window_ms",
        "pass",
    ),
    # --- ZooKeeper, and what comes from outside ---------------------------------------------------
    Remedy(
        "X6",
        "passwords in ZooKeeper are for brokers alone",
        "zk.acls:secure_acl",
        "path.startswith(SENSITIVE)",
        "False",
    ),
    Remedy(
        "X6",
        "consumers keep their nodes",
        "zk.acls:secure_acl",
        "path == CONSUMERS",
        "False",
    ),
    Remedy(
        "X6",
        "a broker that could not own its nodes does not start",
        "zk.login:login_of",
        "keeps_nodes and not login.has_identity",
        "False",
    ),
    Remedy(
        "X7",
        "arrays of a request share a bound",
        "protocol.encoding:_take_room",
        "room[0] < 0",
        "False",
    ),
    Remedy(
        "X7",
        "a name forges no line of the log",
        "protocol.log_lines:_make_safe",
        "character == _LINE_BREAK",
        "False",
    ),
)
"""A remedy: a piece of code without which a fault, or a hazard, is back."""
