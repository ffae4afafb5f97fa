"""Translate the names of cipher suites: Kafka has those of Java and IANA, OpenSSL its own.

The suites of TLS 1.3 have other names, TLS_AES_128_GCM_SHA256 and so on, and cannot be selected one
by one through Python's `ssl`: it offers all of them or none.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.frozen import frozen
from protocol.settings import SettingError

SETTING = "ssl.cipher.suites"

TLS_1_3_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)

# The suites of TLS 1.2: what IANA calls each part, and what OpenSSL does.
_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "RSA": "",
}
_CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CCM": "AES128-CCM",
    "AES_256_CCM": "AES256-CCM",
    "AES_128_CCM_8": "AES128-CCM8",
    "AES_256_CCM_8": "AES256-CCM8",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}
_OPENSSL_NAMES = {
    f"TLS_{exchange}_WITH_{cipher}": prefix + name
    for exchange, prefix in _KEY_EXCHANGES.items()
    for cipher, name in _CIPHERS.items()
}


@frozen
class CipherSuites:
    """The suites of a context. `openssl` are those of TLS 1.2, with colons between.

    A version without suites of its own cannot be spoken.
    """

    openssl: str
    has_tls_1_3: bool

    @property
    def has_tls_1_2(self) -> bool:
        """True if TLS 1.2 has a suite."""
        return bool(self.openssl)


def translate_suites(names: Sequence[str]) -> CipherSuites:
    """Translate the setting's words: Java's names, or OpenSSL's, as librdkafka has them.

    Raises SettingError.
    """
    # librdkafka's list has colons.
    words = [word for name in names for word in name.split(":")]
    modern = [word for word in words if word in TLS_1_3_SUITES]
    if modern and set(modern) != TLS_1_3_SUITES:
        missing = ", ".join(sorted(TLS_1_3_SUITES.difference(modern)))
        raise SettingError(
            SETTING,
            "the suites of TLS 1.3 cannot be selected one by one here: add "
            f"{missing}, or leave all three out to speak TLS 1.2 alone",
        )
    older = [_translate(word) for word in words if word not in TLS_1_3_SUITES]
    return CipherSuites(":".join(older), bool(modern))


def _translate(word: str) -> str:
    # Java has SSL_ before the oldest ones.
    if not word.startswith(("TLS_", "SSL_")):
        return word
    try:
        return _OPENSSL_NAMES["TLS_" + word[4:]]
    except KeyError:
        raise SettingError(SETTING, "is not a cipher suite known here", word) from None
