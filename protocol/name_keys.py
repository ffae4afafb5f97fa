"""Keys for what is remembered by a name that a client chose."""

import hashlib

LONGEST_KEPT = 255
"""Characters of a name that is its own key."""


def key_of_name(name: str) -> str:
    """Return the name, or the digest of a longer one: 32 KB each would be much to remember."""
    if len(name) <= LONGEST_KEPT:
        return name
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
