"""JKS: the files in testdata are keytool's (JDK 17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.tls.certificate import subject_of
from protocol.tls.java_key_store import (
    KeyStoreError,
    WrongPassword,
    read_java_key_store,
    unmask_key,
)

DATA = Path(__file__).parent / "testdata"
KEY_STORE = (DATA / "key.jks").read_bytes()
TRUST_STORE = (DATA / "trust.jks").read_bytes()


def test_a_key_store_has_a_key_with_its_chain() -> None:
    store = read_java_key_store(KEY_STORE, "store-secret")
    (key,) = store.keys
    assert key.alias == "broker"
    assert [subject_of(certificate) for certificate in key.chain] == ["CN=broker,OU=Tests"]
    assert store.certificates == ()

    # PKCS#8: a sequence that begins with version 0.
    plain = unmask_key(key, "key-secret")
    assert plain[0] == 0x30
    assert b"\x02\x01\x00" in plain[:8]


def test_a_trust_store_is_read_without_its_password_too() -> None:
    store = read_java_key_store(TRUST_STORE, None)
    assert store == read_java_key_store(TRUST_STORE, "store-secret")
    assert [subject_of(certificate) for certificate in store.certificates] == ["CN=broker,OU=Tests"]


def test_a_wrong_password_is_told_from_the_keys() -> None:
    with pytest.raises(WrongPassword, match="its password is wrong"):
        read_java_key_store(KEY_STORE, "other")
    (key,) = read_java_key_store(KEY_STORE, "store-secret").keys
    with pytest.raises(WrongPassword, match="key 'broker'"):
        unmask_key(key, "store-secret")


def test_a_changed_byte_is_found_where_there_is_a_password() -> None:
    changed = bytearray(TRUST_STORE)
    changed[-30] ^= 1
    with pytest.raises(WrongPassword):
        read_java_key_store(bytes(changed), "store-secret")


@pytest.mark.parametrize("size", [0, 10, 24, 30, 60, 200, len(KEY_STORE) - 30])
def test_a_store_that_ends_early_is_refused(size: int) -> None:
    with pytest.raises(KeyStoreError):
        read_java_key_store(KEY_STORE[:size], None)


def test_a_key_is_not_in_a_repr() -> None:
    (key,) = read_java_key_store(KEY_STORE, None).keys
    assert repr(key) == "ProtectedKey(alias='broker')"
