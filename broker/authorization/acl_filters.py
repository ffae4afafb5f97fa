"""Very many filters of ACLs together: which of them chooses an ACL first. Pure.

To compare each filter with each ACL would cost their product. So filters are kept by what they
name: those of the same resources together, and of these such that name the same fields of an entry
(its principal alone, or principal and host) in one dict. An entry takes a look-up for each of those
few sets of fields, however many filters there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
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

Fields = tuple[str, ...]
Resources = tuple[ResourceType, str | None, PatternType]
"""What a filter says of resources."""


@attrs.define(eq=False)
class _SameFields:
    """Filters that name the same fields of an entry: the first place for each of their values."""

    values_of: Callable[[Any], Any]
    places: dict[Any, int] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class ResourceFilters:
    """The filters that choose ACLs of one resource."""

    _groups: Sequence[_SameFields]

    @property
    def look_ups(self) -> int:
        """The number of look-ups that an entry takes."""
        return len(self._groups)

    def first(self, entry: AclEntry) -> int | None:
        """Return the least place of a filter that chooses the entry."""
        places = [group.places.get(group.values_of(entry)) for group in self._groups]
        return min((place for place in places if place is not None), default=None)


@attrs.define(eq=False)
class FilterIndex:
    """Filters, each with its place among those of a request."""

    _groups: dict[Resources, dict[Fields, _SameFields]] = attrs.field(factory=dict)
    _matching: dict[str, None] = attrs.field(factory=dict)
    """The names for which all resources are chosen that concern them."""
    _sorted: list[str] | None = None

    def add(self, chosen: AclFilter, place: int) -> None:
        """Add a filter behind the others."""
        resources = chosen.kind, chosen.name, chosen.pattern
        if chosen.pattern is PatternType.MATCH and chosen.name is not None:
            self._matching[chosen.name] = None
            self._sorted = None

        fields = tuple(
            name for name, any_value in _ANY.items() if getattr(chosen, name) != any_value
        )
        by_fields = self._groups.setdefault(resources, {})
        # One for each filter would be looked at for each entry (fault strangers-11, was: None).
        group = by_fields.get(fields)
        if group is None:
            group = by_fields[fields] = _SameFields(attrgetter(*fields) if fields else _nothing)
        group.places.setdefault(group.values_of(chosen), place)

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
        return ResourceFilters([*groups, *self._merge_others(resource)])

    def _merge_others(self, resource: ResourcePattern) -> Collection[_SameFields]:
        """Return together what has other names that the resource pattern concerns."""
        merged: dict[Fields, _SameFields] = {}
        for resources in product(
            (ResourceType.ANY, resource.kind), self._others(resource), (PatternType.MATCH,)
        ):
            for fields, group in self._groups.get(resources, _NONE).items():
                into = merged.setdefault(fields, _SameFields(group.values_of)).places
                for values, place in group.places.items():
                    into[values] = min(place, into.get(values, place))
        return merged.values()

    def _others(self, resource: ResourcePattern) -> Iterator[str]:
        """Go through the other names that a resource pattern concerns."""
        is_prefix = resource.pattern is PatternType.PREFIXED
        if not self._matching or not (is_prefix or resource.name == WILDCARD):
            return
        if self._sorted is None:
            self._sorted = sorted(self._matching)

        # Those with one prefix are neighbours.
        prefix = resource.name if is_prefix else ""
        for at in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            name = self._sorted[at]
            if not name.startswith(prefix):
                break
            if name != resource.name:
                yield name


_NONE: dict[Fields, _SameFields] = {}


def _nothing(_: Any) -> tuple[()]:
    return ()
