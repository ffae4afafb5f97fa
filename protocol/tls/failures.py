"""Say what went wrong with TLS, and what to set: for logs of brokers, and for users of clients."""

from __future__ import annotations

import ssl

HANDSHAKE_RECORD = 0x16
ALERT_RECORD = 0x15


class TlsFailed(Exception):
    """TLS failed: the sides do not agree, one does not trust the other, or takes too long.

    An end of the connection, even within a handshake, is not this but an OSError: it may be over at
    the next try.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


NOT_TLS = "the peer does not speak TLS"

# X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH and _CERT_HAS_EXPIRED.
_NAME_MISMATCH = (62, 64)
_EXPIRED = 10

# By OpenSSL's reason. An ALERT is what the other side says of us.
_ON_CLIENT = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker requires a client certificate: set "
    "ssl.keystore.location, or ssl.certificate.location and ssl.key.location",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker refused the handshake: it requires a client "
    "certificate (ssl.keystore.location), or shares no cipher (ssl.cipher.suites)",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust our certificate "
    "(ssl.keystore.location): its issuer is not in the broker's trust store",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not trust our certificate "
    "(ssl.keystore.location)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker does not accept our certificate "
    "(ssl.keystore.location)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired (ssl.keystore.location)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker speaks none of our versions "
    "(ssl.enabled.protocols)",
    "UNSUPPORTED_PROTOCOL": "the broker speaks none of our versions (ssl.enabled.protocols)",
    "NO_CIPHERS_AVAILABLE": "no cipher is left (ssl.cipher.suites, ssl.enabled.protocols)",
}
_ON_BROKER = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, which "
    "ssl.client.auth=required demands",
    "NO_SHARED_CIPHER": "the client shares no cipher (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "the client speaks none of our versions (ssl.enabled.protocols)",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
}


def explain(error: ssl.SSLError, *, on_server: bool) -> str:
    """Return why TLS failed, in words of the settings where there are some."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, on_server)
    reason = error.reason or str(error)
    known = (_ON_BROKER if on_server else _ON_CLIENT).get(reason)
    return known or reason.lower().replace("_", " ")


def _explain_certificate(error: ssl.SSLCertVerificationError, on_server: bool) -> str:
    message = error.verify_message.rstrip(".")
    if on_server:
        return f"the client's certificate is refused: {message} (ssl.truststore.location)"
    if error.verify_code in _NAME_MISMATCH:
        return (
            f"the broker's certificate is for other names: {message}; connect by a name that is "
            "in it, or set ssl.endpoint.identification.algorithm to nothing"
        )
    if error.verify_code == _EXPIRED:
        return "the broker's certificate has expired"
    return (
        f"the broker's certificate is not trusted: {message}; set ssl.truststore.location "
        "(or ssl.ca.location) to a store that has its issuer"
    )


def explain_first_byte(byte: int, *, on_server: bool) -> str | None:
    """Return why a peer whose first byte this is does not speak TLS; None if it may."""
    if byte == HANDSHAKE_RECORD or (byte == ALERT_RECORD and not on_server):
        return None
    if not on_server:
        return f"{NOT_TLS}: is security.protocol right for this port?"
    if byte == 0:
        return f"{NOT_TLS}: a plaintext request came on a listener with TLS"
    if chr(byte) in "GPHDOTC":
        return f"{NOT_TLS}: an HTTP request came on a listener with TLS"
    return NOT_TLS
