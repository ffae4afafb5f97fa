"""Read the names in an X.509 certificate: its subject, and the alternatives to it."""

from __future__ import annotations

from protocol.tls.der import (
    BOOLEAN,
    DerError,
    Element,
    read_element,
    read_elements,
    read_object_identifier,
)
from protocol.tls.distinguished_name import write_name

_VERSION = 0xA0
_EXTENSIONS = 0xA3
_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate as Java writes it. Raises DerError."""
    return write_name(_fields(certificate)[4].encoded)


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return the subject's alternative names, as DER; none without that extension.

    Raises DerError.
    """
    for field in _fields(certificate)[6:]:
        if field.tag != _EXTENSIONS:
            continue
        for extension in read_elements(read_element(field.content).content):
            type_, *rest = read_elements(extension.content)
            if read_object_identifier(type_.content) != _SUBJECT_ALTERNATIVE_NAME:
                continue

            # A flag, whether the extension is critical, may stand before its value.
            value = next(element for element in rest if element.tag != BOOLEAN)
            names = read_element(value.content).content
            return frozenset(bytes(name.encoded) for name in read_elements(names))
    return frozenset()


def _fields(certificate: bytes) -> list[Element]:
    """Return the signed fields; serial number, algorithm, issuer, validity, subject come first."""
    signed = read_element(read_element(memoryview(certificate)).content)
    fields = list(read_elements(signed.content))

    # The version may be left out where it is 1.
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise DerError("a certificate lacks fields")
    return fields
