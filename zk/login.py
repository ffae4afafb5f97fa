"""How a session shows ZooKeeper who it is, and what comes of that for the nodes that it creates."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class SaslLogin:
    """A login by SASL DIGEST-MD5, as of Java's `DigestLoginModule`: the identity `sasl:NAME`."""

    username: str
    password: str = attrs.field(repr=False)


@attrs.frozen
class TlsFiles:
    """PEM files for TLS to ZooKeeper. With a certificate the session is `x509:SUBJECT` there.

    `checks_host_name`: the server's certificate must have the name that we connect to.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    checks_host_name: bool = True


@attrs.frozen
class ZkLogin:
    """The identities of a session. `digest` is `user:password` of ZooKeeper's own scheme.

    `keeps_nodes`: what the session creates may be changed by these identities alone, which all
    brokers must share.
    """

    sasl: SaslLogin | None = None
    digest: str | None = attrs.field(default=None, repr=False)
    tls: TlsFiles | None = None
    keeps_nodes: bool = False

    @property
    def has_identity(self) -> bool:
        """True if ZooKeeper learns who the session is."""
        has_certificate = self.tls is not None and self.tls.certificate is not None
        return self.sasl is not None or self.digest is not None or has_certificate


NOBODY = ZkLogin()
