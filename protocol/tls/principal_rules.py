"""Make a user's name from a certificate's subject, by `ssl.principal.mapping.rules` (KIP-371).

A rule is DEFAULT, which takes the subject as it is, or RULE:pattern/replacement/, with L or U at
the end for small or capital letters. Patterns and replacements are those of Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from protocol.frozen import frozen
from protocol.settings import SettingError

SETTING = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"

# Kafka's own expressions, by which commas may stand within a rule.
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_RULE_IN_LIST = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_WHOLE_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")

# Java writes (?<name>, Python (?P<name>; (?<= and (?<! look behind in both.
_NAMED_GROUP = re.compile(r"\(\?<(?![=!])")

_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}


class NoPrincipal(Exception):
    """No rule matches a subject, so its connection must be closed."""


@frozen
class PrincipalRule:
    """A rule with a pattern; `replacement` has texts and numbers of groups in turn."""

    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, subject: str) -> str | None:
        """Return the name, or None if the pattern does not match the whole subject."""
        if not self.pattern.fullmatch(subject):
            return None
        # As Java's replaceAll: each match, be it a part of the subject.
        return _CASES[self.case](self.pattern.sub(self._replace, subject))

    def _replace(self, match: re.Match[str]) -> str:
        return "".join(
            part if isinstance(part, str) else match[part] or "" for part in self.replacement
        )


@frozen
class PrincipalRules:
    """The rules in order; None stands for DEFAULT."""

    rules: Sequence[PrincipalRule | None]

    def name_of(self, subject: str) -> str:
        """Return the name by the first rule that matches. Raises NoPrincipal."""
        for rule in self.rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise NoPrincipal(f"no rule of {SETTING} matches the certificate's subject, {subject}")


def parse_rules(text: str) -> PrincipalRules:
    """Read the setting's value. Raises SettingError."""
    rules: list[PrincipalRule | None] = []
    for match in _RULE_IN_LIST.finditer(text.strip()):
        # Empty ones are ignored.
        rule = match[1]
        if not rule:
            continue

        whole = _WHOLE_RULE.fullmatch(rule)
        if whole is None:
            raise SettingError(SETTING, f"Invalid rule: `{rule}`")
        rules.append(None if whole[1] else _parse_rule(rule, whole[2], whole[3], whole[4]))
    return PrincipalRules(tuple(rules))


def _parse_rule(rule: str, pattern: str, replacement: str, case: str) -> PrincipalRule:
    try:
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise SettingError(SETTING, f"Invalid rule: `{rule}`: {error}") from error
    return PrincipalRule(compiled, _parse_replacement(replacement, compiled.groups), case)


def _parse_replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """Split a replacement of Java into texts and numbers of groups.

    A `$` before a number that is no group stands for itself. `$12` with one group is `$1` and a 2.
    """
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        # A backslash makes the next character plain.
        if text[position] == "\\" and position + 1 < len(text):
            parts.append(text[position + 1])
            position += 2
            continue

        number = re.compile(r"\$([0-9])").match(text, position)
        if number is None or int(number[1]) > groups:
            parts.append(text[position])
            position += 1
            continue

        # More digits belong to it as long as there is such a group.
        group = int(number[1])
        position += 2
        while text[position : position + 1].isdecimal():
            longer = group * 10 + int(text[position])
            if longer > groups:
                break
            group = longer
            position += 1
        parts.append(group)
    return tuple(parts)
