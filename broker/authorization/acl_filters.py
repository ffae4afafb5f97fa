"""Very many filters of ACLs together: which of them chooses an ACL first. Pure.

To compare each filter with each ACL would cost their product. So filters are kept by what they
name: those of the same resources together, and of these such that name the same fields of an entry
(its principal alone, or principal and host) in one dict. An entry takes a look-up for each of those
few sets of fields, however many filters there are. A prefix concerns all the names that begin with
it: those are sorted, and neighbours.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import product
from operator import attrgetter
from typing import Any

import attrs

from protocol.acls import (
    WILDCARD,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_ANY: dict[str, Any] = {
    "principal": None,
    "host": None,
    "operation": Operation.ANY,
    "permission": Permission.ANY,
}
"""The fields of an entry, with what a filter has that does not name them."""

NAMES_A_LOOK_UP = 1000
"""Names that take as long as one look-up, when the least place among theirs is searched for."""

Fields = tuple[str, ...]
Resources = tuple[ResourceType, str | None, PatternType]
"""What a filter says of resources."""


@attrs.define(eq=False)
class _SameFields:
    """Filters that name the same fields of an entry: the first place for each of their values."""

    values_of: Callable[[Any], Any]
    places: dict[Any, int] = attrs.field(factory=dict)

    def first(self, entry: AclEntry) -> int | None:
        """Return the least place of a filter with the values of the entry."""
        return self.places.get(self.values_of(entry))


@attrs.define(eq=False)
class _Names:
    """What filters that are alike but for it name, sorted, each with its first place."""

    _places: dict[str, int] = attrs.field(factory=dict)
    _sorted: list[str] = attrs.field(factory=list)
    _in_order: list[int] = attrs.field(factory=list)

    def add(self, name: str, place: int) -> None:
        self._places.setdefault(name, place)

    def first(self, prefix: str) -> int | None:
        """Return the least place of a name that begins with the prefix."""
        if len(self._sorted) < len(self._places):
            self._sorted = sorted(self._places)
            self._in_order = [self._places[name] for name in self._sorted]

        begin = bisect_left(self._sorted, prefix)
        end = bisect_right(self._sorted, prefix, begin, key=lambda name: name[: len(prefix)])
        return min(self._in_order[begin:end], default=None)


@attrs.define(eq=False)
class _MatchingNames:
    """Filters of PatternType.MATCH that name the same fields: the names by the fields' values."""

    values_of: Callable[[Any], Any]
    names: dict[Any, _Names] = attrs.field(factory=dict)
    count: int = 0


@attrs.define(eq=False)
class _Concerned:
    """Those of matching names that a prefix concerns."""

    matching: _MatchingNames
    prefix: str
    _known: dict[Any, int | None] = attrs.field(factory=dict)

    def first(self, entry: AclEntry) -> int | None:
        """Return the least place of a filter with the values of the entry."""
        values = self.matching.values_of(entry)
        # A resource with many entries would have the names compared for each.
        if values not in self._known:
            names = self.matching.names.get(values)
            self._known[values] = None if names is None else names.first(self.prefix)
        return self._known[values]


@attrs.frozen(eq=False)
class ResourceFilters:
    """The filters that choose ACLs of one resource."""

    _groups: Sequence[_SameFields]
    _concerned: Sequence[_Concerned]

    @property
    def look_ups(self) -> int:
        """The number of look-ups that an entry takes."""
        return len(self._groups) + sum(
            1 + some.matching.count // NAMES_A_LOOK_UP for some in self._concerned
        )

    def first(self, entry: AclEntry) -> int | None:
        """Return the least place of a filter that chooses the entry."""
        places = [group.first(entry) for group in self._groups]
        places += [some.first(entry) for some in self._concerned]
        return min((place for place in places if place is not None), default=None)


@attrs.define(eq=False)
class FilterIndex:
    """Filters, each with its place among those of a request."""

    _groups: dict[Resources, dict[Fields, _SameFields]] = attrs.field(factory=dict)
    _matching: dict[ResourceType, dict[Fields, _MatchingNames]] = attrs.field(factory=dict)
    """Those for which all resources are chosen that concern their name."""

    def add(self, chosen: AclFilter, place: int) -> None:
        """Add a filter behind the others."""
        fields = tuple(
            name for name, any_value in _ANY.items() if getattr(chosen, name) != any_value
        )
        by_fields = self._groups.setdefault((chosen.kind, chosen.name, chosen.pattern), {})
        # One for each filter would be looked at for each entry (fault strangers-11, was: None).
        group = by_fields.get(fields)
        if group is None:
            group = by_fields[fields] = _SameFields(attrgetter(*fields) if fields else _nothing)
        values = group.values_of(chosen)
        group.places.setdefault(values, place)

        if chosen.pattern is PatternType.MATCH and chosen.name is not None:
            of_kind = self._matching.setdefault(chosen.kind, {})
            matching = of_kind.setdefault(fields, _MatchingNames(group.values_of))
            matching.names.setdefault(values, _Names()).add(chosen.name, place)
            matching.count += 1

    def of(self, resource: ResourcePattern) -> ResourceFilters:
        """Return those that choose ACLs of a resource pattern, as `AclFilter.chooses_resource`."""
        kinds = ResourceType.ANY, resource.kind
        names = None, resource.name
        patterns = PatternType.ANY, PatternType.MATCH, resource.pattern
        groups = [
            group
            for resources in product(kinds, names, patterns)
            for group in self._groups.get(resources, _NONE).values()
        ]
        concerned: list[_Concerned] = []
        is_prefix = resource.pattern is PatternType.PREFIXED
        if is_prefix or resource.name == WILDCARD:
            prefix = resource.name if is_prefix else ""
            concerned += (
                _Concerned(matching, prefix)
                for kind in kinds
                for matching in self._matching.get(kind, _NO_NAMES).values()
            )
        return ResourceFilters(groups, concerned)


_NONE: dict[Fields, _SameFields] = {}
_NO_NAMES: dict[Fields, _MatchingNames] = {}


def _nothing(_: Any) -> tuple[()]:
    return ()
