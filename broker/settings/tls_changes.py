"""Judge new stores of a listener beside the old ones: most mistakes of a renewal show here.

A renewed certificate is for the same subject and for all names of the old one, as Kafka demands
(`ssl.allow.dn.changes` and `ssl.allow.san.changes` allow more). On the listener between brokers old
and new stores must also trust each other, because brokers change theirs one after the other.
"""

from __future__ import annotations

import ssl

import attrs

from protocol.frozen import frozen
from protocol.settings import SettingError
from protocol.tls.certificate import alternative_names, subject_of
from protocol.tls.config import ServerTlsConfig
from protocol.tls.context import make_client_context, make_server_context, try_handshake
from protocol.tls.failures import explain
from protocol.tls.stores import KEY_STORE, TRUST_STORE, Stores


@frozen
class LoadedTls:
    """The settings of a listener with the stores that they name, as they were read."""

    config: ServerTlsConfig
    stores: Stores

    def server_context(self) -> ssl.SSLContext:
        """Make the context for connections that come. Raises SettingError."""
        return make_server_context(self.config, self.stores)

    def client_context(self, *, checks_names: bool = True) -> ssl.SSLContext:
        """Make the context for connections to other brokers. Raises SettingError."""
        config = self.config
        if not checks_names:
            config = attrs.evolve(config, ssl_endpoint_identification_algorithm="")
        return make_client_context(config, self.stores)


def refuse_change(old: LoadedTls, new: LoadedTls) -> None:
    """Raise SettingError unless `new` may take the place of `old`."""
    assert old.stores.key is not None
    assert new.stores.key is not None
    before, after = old.stores.key.chain[0], new.stores.key.chain[0]

    subject = subject_of(before)
    if not new.config.ssl_allow_dn_changes and subject_of(after) != subject:
        raise SettingError(
            KEY_STORE, f"the certificate is for {subject_of(after)}, and was for {subject}"
        )
    lost = alternative_names(before) - alternative_names(after)
    if not new.config.ssl_allow_san_changes and lost:
        # An element's tag says which kind of name it is, its length follows.
        names = ", ".join(sorted(name[2:].decode("utf-8", "backslashreplace") for name in lost))
        raise SettingError(KEY_STORE, f"the certificate lacks names that the old one has: {names}")


def refuse_strangers(server: LoadedTls, client: LoadedTls) -> None:
    """Raise SettingError unless a broker with one config can connect to one with the other."""
    try:
        try_handshake(server.server_context(), client.client_context(checks_names=False))
    except ssl.SSLError as error:
        reason = explain(error, on_server=False)
        raise SettingError(
            TRUST_STORE, f"brokers could not connect to each other with these stores: {reason}"
        ) from error
