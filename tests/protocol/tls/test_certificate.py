"""The names in a certificate."""

from __future__ import annotations

import ssl

import pytest
import trustme

from protocol.tls.certificate import alternative_names, subject_of
from protocol.tls.der import DerError
from tests.stage.certificates import shared_ca, shared_leaf


def der(leaf: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())


def test_the_subject_is_that_of_the_certificate_and_not_of_its_issuer() -> None:
    subject = subject_of(der(shared_leaf("localhost", common_name="alice")))
    assert subject == r"CN=alice,OU=Tests,O=Acme\, Inc"


def test_alternative_names_are_all_kinds_of_them() -> None:
    names = alternative_names(der(shared_leaf("localhost", "127.0.0.1", common_name="broker")))
    assert names == {b"\x82\x09localhost", b"\x87\x04\x7f\0\0\1"}


def test_a_certificate_without_the_extension_has_no_alternative_names() -> None:
    authority = ssl.PEM_cert_to_DER_cert(shared_ca().cert_pem.bytes().decode())
    assert alternative_names(authority) == frozenset()


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(DerError):
        subject_of(b"\x30\x04\x30\x02\x05\x00")
