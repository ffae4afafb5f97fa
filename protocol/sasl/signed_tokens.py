"""Check who has signed a token of OAUTHBEARER, by the public keys of those who may.

PyJWT computes the signatures; it is imported when keys are read. The algorithms are the asymmetric
ones: a token that claims another, or none, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from protocol.errors import KgroupError
from protocol.frozen import frozen
from protocol.sasl.oauthbearer import InvalidToken

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    "EdDSA",
)

_ONLY_KEY: Final = ""


class SecurityExtraMissing(KgroupError):
    """A package of the extra `security` is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "signed tokens of OAUTHBEARER need PyJWT and cryptography: "
            "pip install 'kgroup[security]'"
        )


class BadKeys(ValueError):
    """The file has no public keys that can be read."""


class UnknownKey(InvalidToken):
    """The token names a key that is not among those that are known."""


@frozen
class TokenKeys:
    """Public keys by their ids; a single key without an id is for all tokens."""

    keys: Mapping[str, Any] = attrs.field(repr=False)

    def verify(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that one of the keys has signed. Raises InvalidToken."""
        import jwt

        jws = jwt.PyJWS()
        try:
            key_id = jws.get_unverified_header(token).get("kid")
            key = self._find(key_id)
            claims = json.loads(jws.decode(token, key, algorithms=list(ALGORITHMS)))
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            # Its text may have words of the token, which are no lines for a log.
            kind = type(error).__name__
            raise InvalidToken(f"the token is not signed as it must be: {kind}") from None
        if not isinstance(claims, dict):
            raise InvalidToken("the token's claims are no JSON object")
        return claims

    def _find(self, key_id: object) -> Any:
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        key = self.keys.get(str(key_id), self.keys.get(_ONLY_KEY))
        if key is None:
            raise UnknownKey("no key has the id that the token names")
        return key


def read_keys(text: bytes) -> TokenKeys:
    """Read a JWKS document (RFC 7517), or one public key in PEM.

    Raises BadKeys, SecurityExtraMissing.
    """
    try:
        import jwt
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise SecurityExtraMissing from None

    if text.lstrip().startswith(b"-----BEGIN"):
        try:
            return TokenKeys({_ONLY_KEY: load_pem_public_key(text)})
        except ValueError:
            raise BadKeys("the file has no public key in PEM") from None

    try:
        key_set = jwt.PyJWKSet.from_dict(json.loads(text))
    except (jwt.PyJWTError, ValueError, AttributeError, TypeError):
        raise BadKeys("the file is neither a JWKS document nor a public key in PEM") from None
    # Symmetric keys would let anybody who can read the file sign.
    keys = {key.key_id or _ONLY_KEY: key.key for key in key_set.keys if key.key_type != "oct"}
    if not keys:
        raise BadKeys("the file has no public key")
    return TokenKeys(keys)
