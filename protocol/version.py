"""The version of this software: of its packages, of its commands, and on the wire."""

__version__ = "0.1.0"
