"""Options that together name one thing, which the command gets in their place."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def gather_options(
    options: Mapping[str, Any], name: str, choose: Callable[..., Any]
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that adds `options`, by their parameters, to a command.

    The command gets `choose(**chosen)` as its argument `name`.
    """

    def add_options(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def with_choice(*args: Any, **given: Any) -> T:
            chosen = {parameter: given.pop(parameter) for parameter in options}
            return command(*args, **{name: choose(**chosen)}, **given)

        # Decorators apply from the inside out: the last one is the first in the help.
        for option in reversed(list(options.values())):
            with_choice = option(with_choice)
        return with_choice

    return add_options
