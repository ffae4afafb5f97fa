"""An authority for TLS and the keys that it signs, in PEM. This needs the package cryptography."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocol.frozen import frozen

VALID_FOR = datetime.timedelta(days=3650)
CLOCKS_DIFFER_BY = datetime.timedelta(days=1)


@frozen
class SignedKey:
    """A private key and its certificate."""

    key: str = attrs.field(repr=False)
    certificate: str


def make_authority(name: str) -> SignedKey:
    """Make a key, and sign it by itself. Only it can sign others."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _begin(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, SHA256())
    )
    return _signed_key(key, certificate)


def sign_key(authority: SignedKey, name: str, hosts: Sequence[str]) -> SignedKey:
    """Make a key, and sign it for names and addresses of hosts; it serves clients and servers."""
    issuer_key = load_pem_private_key(authority.key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())

    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _begin(_name(name), issuer.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_host, hosts)), critical=False)
        .sign(issuer_key, SHA256())
    )
    return _signed_key(key, certificate)


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER_BY)
        .not_valid_after(now + VALID_FOR)
        .add_extension(key_id, critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed_key(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> SignedKey:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return SignedKey(pem.decode(), certificate.public_bytes(Encoding.PEM).decode())
