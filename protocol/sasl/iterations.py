"""Bound how often SCRAM hashes a password: it makes guessing expensive, and logging in too."""

from typing import Final

MIN_ITERATIONS: Final = 4096
DEFAULT_ITERATIONS: Final = 4096
MAX_STORED_ITERATIONS: Final = 16_384
"""Most iterations of a credential that AlterUserScramCredentials takes."""
MAX_ITERATIONS: Final = 1_000_000
"""Most iterations that a client computes for a server: about a second."""
