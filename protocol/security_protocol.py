"""Name the protections of a listener's bytes (SecurityProtocol)."""

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """A security protocol, with its number on the wire."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3
