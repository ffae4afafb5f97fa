"""TLS of a listener: its context, and the user that a client's certificate names."""

from __future__ import annotations

import ssl

import attrs

from broker.network.session import ANONYMOUS, Principal
from protocol.tls.certificate import subject_of
from protocol.tls.failures import TlsFailed
from protocol.tls.principal_rules import NoPrincipal, PrincipalRules


@attrs.define(eq=False)
class ListenerTls:
    """TLS of one listener. A renewed `context` is for connections that are accepted from then on.

    `names_users`: the certificate says who a client is; with SASL_SSL its login does.
    """

    context: ssl.SSLContext
    rules: PrincipalRules
    names_users: bool

    def principal_of(self, connection: ssl.SSLObject) -> Principal:
        """Return the user after a handshake: ANONYMOUS without a certificate that was verified.

        Raises TlsFailed if no rule gives the user a name.
        """
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", self.rules.name_of(subject_of(certificate)))
        except (NoPrincipal, ValueError) as error:
            # A ValueError: OpenSSL has taken a name that we cannot read.
            raise TlsFailed(str(error)) from error
