"""Read and write `sasl.jaas.config`: the login module of a mechanism, and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

The syntax is what Kafka's JaasConfig takes from Java's StreamTokenizer, with its surprises: a word
without quotes begins with a letter or `_` or `$`, so `password=12345` is an error, and a lone `/`
begins a comment. No error shows a value.

The module's name chooses among three; nothing is ever loaded by it (CVE-2023-25194).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from protocol.frozen import frozen
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

_PACKAGE: Final = "org.apache.kafka.common.security."
PLAIN_MODULE: Final = _PACKAGE + "plain.PlainLoginModule"
SCRAM_MODULE: Final = _PACKAGE + "scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = _PACKAGE + "oauthbearer.OAuthBearerLoginModule"

MODULE_OF: Final[Mapping[str, str]] = {
    PLAIN: PLAIN_MODULE,
    SCRAM_SHA_256: SCRAM_MODULE,
    SCRAM_SHA_512: SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
}

_FLAGS: Final = {"required", "requisite", "sufficient", "optional"}


class JaasError(ValueError):
    """The text is no JAAS entry, or one of a module that is not served."""


@frozen
class JaasEntry:
    """A login module with its options, some of which are secret."""

    module: str
    options: Mapping[str, str] = attrs.field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Read the only entry of `text`. Raises JaasError."""
    tokens = _tokenize(text)
    entries = []
    while tokens:
        end = next((i for i, token in enumerate(tokens) if token.symbol == ";"), None)
        if end is None:
            raise JaasError("JAAS config entry not terminated by semi-colon")
        entries.append(_parse_entry(tokens[:end]))
        del tokens[: end + 1]

    if not entries:
        raise JaasError("Login module not specified in JAAS config")
    if len(entries) > 1:
        raise JaasError(f"JAAS config property contains {len(entries)} login modules, should be 1")
    return entries[0]


def parse_jaas_for(mechanism: str, text: str) -> JaasEntry:
    """Read the entry of a mechanism, which has to name its module. Raises JaasError."""
    entry = parse_jaas(text)
    expected = MODULE_OF[mechanism]
    if entry.module not in MODULE_OF.values():
        raise JaasError(f"login module {entry.module} is not served; {mechanism} has {expected}")
    if entry.module != expected:
        raise JaasError(f"login module {entry.module} is not of {mechanism}, which has {expected}")
    return entry


def format_jaas(module: str, **options: str) -> str:
    """Write the only entry of a text, so that it can be read back."""
    pairs = "".join(f" {name}={quote_value(value)}" for name, value in options.items())
    return f"{module} required{pairs};"


def quote_value(text: str) -> str:
    """Quote the value of an option, whatever characters it has."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Token(NamedTuple):
    """A word or quoted string, or else a symbol: one character, or "0" for a number."""

    word: str | None
    symbol: str = ""


def _parse_entry(tokens: list[_Token]) -> JaasEntry:
    # The module and its flag.
    if not tokens or tokens[0].word is None:
        raise JaasError("Login module not specified in JAAS config")
    flag = tokens[1].word if len(tokens) > 1 else None
    if flag is None or flag.lower() not in _FLAGS:
        raise JaasError(
            "Login module control flag is not required, requisite, sufficient, optional"
        )

    # The options: key = value. The text at a wrong place may be a secret, so it is not shown.
    options: dict[str, str] = {}
    rest = tokens[2:]
    while rest:
        key = rest[0].word
        if key is None:
            raise JaasError(
                f"after {_last_key(options)} comes neither a key nor a semi-colon: a value with "
                "other characters than letters, digits and ._-$ has to be quoted"
            )
        if len(rest) < 3 or rest[1].symbol != "=" or rest[2].word is None:
            # The key may be the rest of a value that is not quoted.
            shown = key if len(rest) > 1 and rest[1].symbol == "=" else _last_key(options)
            raise JaasError(
                f"Value not specified for key '{shown}' in JAAS config; a value that does not "
                "begin with a letter has to be quoted"
            )
        options[key] = rest[2].word
        del rest[:3]
    return JaasEntry(tokens[0].word, options)


def _last_key(options: dict[str, str]) -> str:
    return next(reversed(options), "the control flag")


_SKIPPED = re.compile(r"[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/(?!\*)[^\r\n]*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*")
_NUMBER = re.compile(r"-?[0-9.]+")
_QUOTED = re.compile(r"""(["'])((?:\\[^\r\n]|(?!\1)[^\\\r\n])*)\1""")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def _tokenize(text: str) -> list[_Token]:
    tokens = []
    pos = 0
    while pos < len(text):
        if match := _SKIPPED.match(text, pos):
            pass
        elif match := _WORD.match(text, pos):
            tokens.append(_Token(match[0]))
        elif match := _QUOTED.match(text, pos):
            tokens.append(_Token(_ESCAPE.sub(_unescape, match[2])))
        elif text[pos] in "\"'":
            raise JaasError("a quoted value does not end on its line")
        elif match := _NUMBER.match(text, pos):
            tokens.append(_Token(None, "0"))
        else:
            tokens.append(_Token(None, text[pos]))
        pos = match.end() if match else pos + 1
    return tokens


def _unescape(match: re.Match[str]) -> str:
    character = match[1]
    if character[0] in "01234567":
        return chr(int(character, 8))
    return _ESCAPED.get(character, character)
