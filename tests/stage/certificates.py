"""An authority for tests, and files with the certificates that it signs.

Made once for all tests of a process: a key takes a while.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import attrs
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificates


@attrs.frozen
class Authority:
    """An authority whose certificates are files in `folder`."""

    folder: Path
    ca: trustme.CA = attrs.field(factory=trustme.CA)

    @property
    def trusted(self) -> str:
        """The path of the authority's own certificate."""
        path = self.folder / "ca.pem"
        if not path.exists():
            self.ca.cert_pem.write_to_path(path)
        return str(path)

    def issue(self, file_name: str, *names: str, common_name: str | None = None) -> str:
        """Sign a new key for these names; return the path of a PEM file with key and chain."""
        path = self.folder / file_name
        leaf = issue_leaf(self.ca, *names, common_name=common_name)
        leaf.private_key_and_cert_chain_pem.write_to_path(path)
        return str(path)


def as_java_reads_it(path: str) -> str:
    """Write the key of a PEM file as PKCS #8, the only form that Java knows; return the path."""
    content = Path(path).read_bytes()
    key = serialization.load_pem_private_key(content, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = Path(path).with_suffix(".pkcs8.pem")
    made.write_bytes(key + content[content.index(b"-----BEGIN CERTIFICATE") :])
    return str(made)


def as_pkcs12(path: str, password: str) -> str:
    """Write the key and the certificates of a PEM file as PKCS12; return the path."""
    content = Path(path).read_bytes()
    leaf, *chain = load_pem_x509_certificates(content)
    store = pkcs12.serialize_key_and_certificates(
        None,
        serialization.load_pem_private_key(content, None),
        leaf,
        chain,
        serialization.BestAvailableEncryption(password.encode()),
    )
    made = Path(path).with_suffix(".p12")
    made.write_bytes(store)
    return str(made)


def issue_leaf(ca: trustme.CA, *names: str, common_name: str | None = None) -> trustme.LeafCert:
    """Sign a new key, in an organization with a comma in its name."""
    return ca.issue_cert(
        *names,
        common_name=common_name,
        organization_name="Acme, Inc",
        organization_unit_name="Tests",
    )


@cache
def shared_ca() -> trustme.CA:
    """Return an authority that all tests may use."""
    return trustme.CA()


@cache
def shared_leaf(*names: str, common_name: str | None = None) -> trustme.LeafCert:
    """Return a certificate of the shared authority."""
    return issue_leaf(shared_ca(), *names, common_name=common_name)
