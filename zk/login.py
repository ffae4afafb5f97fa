"""Log a session in at ZooKeeper, and choose the ACLs of the nodes that it creates."""

from __future__ import annotations

import ssl

import attrs

from protocol.frozen import frozen
from protocol.settings import SettingError
from protocol.tls.config import TlsConfig
from protocol.zookeeper_security import JAAS, ZooKeeperSecurity, names_of


@frozen
class SaslLogin:
    """A login by SASL DIGEST-MD5, as of Java's `DigestLoginModule`: the identity `sasl:NAME`."""

    username: str
    password: str = attrs.field(repr=False)


@frozen
class ZkLogin:
    """The identities of a session. `digest` is `user:password` of ZooKeeper's own scheme.

    With a certificate of ours in `tls` the session is `x509:SUBJECT`. `keeps_nodes`: what the
    session creates may be changed by these identities alone, which all brokers must share.
    """

    sasl: SaslLogin | None = None
    digest: str | None = attrs.field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    has_certificate: bool = False
    keeps_nodes: bool = False

    @property
    def has_identity(self) -> bool:
        """True if ZooKeeper learns who the session is."""
        return self.sasl is not None or self.digest is not None or self.has_certificate


NOBODY = ZkLogin()


def login_of(config: ZooKeeperSecurity, *, keeps_nodes: bool = False) -> ZkLogin:
    """Return the login that settings ask for. This reads the files of TLS. Raises SettingError."""
    sasl = config.zookeeper_sasl_login()
    tls = config.zookeeper_tls()
    context, has_certificate = (None, False) if tls is None else _prepare_tls(tls)
    login = ZkLogin(
        sasl=None if sasl is None else SaslLogin(*sasl),
        digest=config.zookeeper_digest,
        tls=context,
        has_certificate=has_certificate,
        keeps_nodes=keeps_nodes,
    )
    if keeps_nodes and not login.has_identity:
        raise SettingError(
            "zookeeper.set.acl",
            f"needs a login to ZooKeeper, the same one on all brokers: {JAAS}, or "
            "zookeeper.ssl.client.enable with a key store",
        )
    return login


def _prepare_tls(config: TlsConfig) -> tuple[ssl.SSLContext, bool]:
    """Return the context, and whether it has a certificate of ours. Raises SettingError."""
    # Sessions without TLS begin without these.
    from protocol.tls.context import make_client_context
    from protocol.tls.stores import load_stores

    try:
        stores = load_stores(config)
        return make_client_context(config, stores), stores.key is not None
    except SettingError as error:
        raise names_of(error) from error
