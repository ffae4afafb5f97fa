"""Settings that hold an object: the object itself, its class, or the name of the class.

Kafka's settings name Java classes, made by reflection. Here a name is `module:Class`, the object
is made without arguments, and whoever writes Python gives the object.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from protocol.settings import SettingError

T = TypeVar("T")


def named_object(given: Any) -> Any:
    """The object that a setting gives, names or is the class of.

    Raises LookupError for a name that is none; what importing or making the object raises passes.
    """
    if isinstance(given, str):
        module, colon, name = given.partition(":")
        if not colon:
            raise LookupError(f"{given!r} is not module:Class")
        try:
            given = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise LookupError(f"{given!r}: {error}") from error
    return given() if isinstance(given, type) else given


def named_callable(given: Any, method: str) -> Callable[..., Any]:
    """That object's `method`, or the object itself if it has none and can be called.

    Raises as `named_object`, and TypeError for an object that is of no use.
    """
    found = named_object(given)
    called = getattr(found, method, found)
    if not callable(called):
        raise TypeError(f"{given!r} cannot be called and has no method {method}")
    return cast("Callable[..., Any]", called)


def made_of(setting_name: str, make: Callable[[Any], T], given: Any) -> T:
    """What `make` makes of a setting's value. Raises SettingError if that is nothing of use."""
    try:
        return make(given)
    except (LookupError, TypeError) as error:
        raise SettingError(setting_name, f"{given!r} cannot be used: {error}") from error
