"""Cipher suites by Java's names."""

from __future__ import annotations

import ssl

import pytest

from protocol.settings import SettingError
from protocol.tls.cipher_names import TLS_1_3_SUITES, translate_suites


def test_the_names_are_those_of_openssl() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    known = {cipher["name"]: cipher["id"] & 0xFFFF for cipher in context.get_ciphers()}
    numbers = {
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": 0xC02F,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": 0xC02C,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA8,
        "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": 0x006B,
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": 0xC028,
        "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": 0xC0AE,
        "TLS_RSA_WITH_AES_128_CBC_SHA": 0x002F,
    }
    assert {name: known[translate_suites([name]).openssl] for name in numbers} == numbers


def test_librdkafkas_list_has_openssls_names_with_colons() -> None:
    suites = translate_suites(["ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"])
    assert suites.openssl == "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"


def test_a_version_without_suites_is_not_spoken() -> None:
    older = translate_suites(["SSL_RSA_WITH_AES_128_CBC_SHA"])
    assert (older.has_tls_1_2, older.has_tls_1_3) == (True, False)
    newer = translate_suites(sorted(TLS_1_3_SUITES))
    assert (newer.has_tls_1_2, newer.has_tls_1_3) == (False, True)


def test_a_choice_among_the_suites_of_tls_1_3_is_refused() -> None:
    with pytest.raises(SettingError, match="add TLS_AES_256_GCM_SHA384, TLS_CHACHA20"):
        translate_suites(["TLS_AES_128_GCM_SHA256"])


def test_an_unknown_suite_is_named() -> None:
    with pytest.raises(SettingError, match="Invalid value TLS_NULL_WITH_NULL_NULL"):
        translate_suites(["TLS_NULL_WITH_NULL_NULL"])
