"""Make classes of values, as `attrs.frozen` does, in two fifths of its time.

attrs compiles the methods of each class when its module is imported. A command has a hundred such
classes and a broker five hundred, made before it does anything: `__init__` is compiled for each,
but `__eq__`, `__hash__` and `__repr__` are functions that all of them share.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from attrs import frozen as frozen
else:

    def frozen(cls: C | None = None, **options: bool) -> C | Callable[[C], C]:
        """Make a class whose objects do not change, and are equal if their fields are.

        A field with `eq=False` does not count for that, and one with `repr=False` is not shown.
        The options are those of `attrs.frozen`, except those about the methods that are shared.
        """

        def make(cls: C) -> C:
            return share_methods(cls, attrs.frozen(eq=False, repr=False, **options))

        return make if cls is None else make(cls)


def share_methods(cls: C, make: Callable[[C], C]) -> C:
    """Make an attrs class with `make`, which is to add neither `__eq__` nor `__repr__`.

    Those that `cls` has itself are left alone.
    """
    own = vars(cls)
    if "__eq__" not in own:
        cls.__eq__ = _equal  # type: ignore[method-assign, assignment]
        cls.__hash__ = _hash  # type: ignore[method-assign, assignment]
    if "__repr__" not in own:
        cls.__repr__ = _represent  # type: ignore[method-assign, assignment]

    made: Any = make(cls)
    fields = attrs.fields(made)
    compared = tuple(field.name for field in fields if field.eq)
    made.__compared__ = attrgetter(*compared) if compared else type
    made.__shown__ = tuple(field.name for field in fields if field.repr)
    return made  # type: ignore[no-any-return]


def _equal(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash((type(self), _values(self)))


def _values(self: Any) -> object:
    return self.__compared__(self)


def _represent(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__shown__)
    return f"{type(self).__name__}({', '.join(shown)})"
