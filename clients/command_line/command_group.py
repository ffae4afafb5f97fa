"""Start and end both commands: sub-commands imported late, errors in one line, exit codes.

0 all done, 1 a failure or partial failure, 2 wrong usage, 130 interrupted.
"""

import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import click

from clients.command_line.output import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    error_text,
    show_failure,
)
from clients.command_line.printing import plain, say
from protocol.log_lines import SafeFormatter
from protocol.version import COMPILED, __version__

P = ParamSpec("P")
T = TypeVar("T")

EXIT_MISUSED = 2


class CommandFailed(click.ClickException):
    """A failure that is not a bug: one line, no traceback, exit code 1."""

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        """Print the message as all our errors are printed."""
        say(f"error: {self.format_message()}", err=True)


class Misused(CommandFailed):
    """Wrong usage that is found only after the work has begun, mostly in a setting."""

    exit_code = EXIT_MISUSED


COMPLETION = "clients.kgroup.completion"
"""Completes the names of groups and topics. It reads groups, so it stands above this module."""


class _Text(type(click.STRING)):  # type: ignore[misc]  # click does not export the class
    """Text that brokers can be sent: a name of the shell may have bytes that are no UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raises BadParameter (exit code 2)."""
        text: str = super().convert(value, param, ctx)
        try:
            # One such name kept a command from all others (fault strangers-171).
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} has no UTF-8 form, in which it is sent", param, ctx)
        return text


class SuggestingGroup(click.Group):
    """Names the sub-command that was probably meant, where there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the sub-command. Raises UsageError."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
            for param in command.params if command is not None else ():
                if param.type is click.STRING:
                    param.type = _TEXT
            return name, command, rest
        except click.UsageError as error:
            near = self.find_near(ctx, args[0])
            # click itself knows the names that it holds.
            if near is not None and "Did you mean" not in error.format_message():
                hint = f"{error.message} Did you mean {near!r}?"
                # The settings have such a hint, too (fault users-29, was: error.message).
                error.message = hint  # type: ignore[misc]  # Final in click
            raise

    def find_near(self, ctx: click.Context, name: str) -> str | None:
        """Return the sub-command that somebody means by a name."""
        return next(iter(get_close_matches(name, self.list_commands(ctx), 1)), None)


_TEXT = _Text()


class CommandGroup(SuggestingGroup):
    """Imports a sub-command only when it is used, so that `--help` is quick.

    `rows` gives each sub-command its module, whose `command` is run, and its line in the help.
    `expected` returns the exceptions that are no bug; `misuse` returns those of them that are
    wrong usage. Both are called only after an exception.
    """

    def __init__(
        self,
        *args: Any,
        rows: Mapping[str, tuple[str, str]],
        expected: Callable[[], tuple[type[Exception], ...]],
        misuse: Callable[[], tuple[type[Exception], ...]] = tuple,
        **kwargs: Any,
    ) -> None:
        help_options = {"help_option_names": ["-h", "--help"]}
        super().__init__(*args, context_settings=help_options, **kwargs)
        self.rows = rows
        self.expected = expected
        self.misuse = misuse

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the rows."""
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the sub-command's module."""
        if cmd_name not in self.rows:
            return None

        sub_command = import_for_good(self.rows[cmd_name][0]).command
        assert isinstance(sub_command, click.Command)

        # Only a shell that completes a command line parses it resiliently.
        if ctx.resilient_parsing:
            import_module(COMPLETION).complete_names(sub_command)
        return sub_command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the rows, without importing a sub-command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.rows.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command. An expected exception becomes one line and an exit code."""
        # Where a command does not say how to log, warnings of libraries go to stderr by this one.
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(SafeFormatter("%(levelname)s: %(message)s"))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except click.ClickException as error:
            # click itself prints it, and names of members may be in it.
            error.message = plain(error.message)  # type: ignore[misc]  # Final in click
            if isinstance(error, CommandFailed):
                show_failure(ctx, error, error.message)
            raise
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            # click itself ends with these.
            raise
        except Exception as raised:
            errors = list(leaves(raised))

            # One error that is not expected is a bug, and shows its traceback.
            if not all(isinstance(error, (*self.expected(), OSError)) for error in errors):
                raise

            # The first error of a task group stands for all.
            failure = Misused if isinstance(errors[0], self.misuse()) else CommandFailed
            message = message_of(errors[0])
            show_failure(ctx, errors[0], plain(message))
            raise failure(message) from raised
        except BaseException as raised:
            # A second signal cuts short what a command does after the first one. Where nothing has
            # imported asyncio there is no task, and its import would take a third of the start.
            asyncio = sys.modules.get("asyncio")
            if asyncio is None or not isinstance(raised, asyncio.CancelledError):
                raise
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def import_for_good(name: str) -> ModuleType:
    """Import a module without looking for garbage, now or later: what modules are made of stays.

    The looks would take a tenth of the start; 5 MB that are garbage are kept.
    """
    if name in sys.modules:
        return sys.modules[name]

    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def leaves(error: Exception) -> Iterator[Exception]:
    """Yield the exceptions in a task group's exception group, or the exception itself."""
    if isinstance(error, ExceptionGroup):
        for nested in error.exceptions:
            yield from leaves(nested)
    else:
        yield error


def message_of(error: Exception) -> str:
    """Return one line that names the error, also if the exception has no text."""
    # Its `str` would begin with [Errno n].
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"

    # A message of several lines becomes one.
    return " ".join(error_text(error).split()) or type(error).__name__


def version_option() -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return the option `--version`, which prints the version, and whether it is compiled."""
    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Show the version and exit.",
    )


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return

    form = "compiled" if COMPILED else "pure Python"
    say(f"{ctx.find_root().info_name} {__version__} ({form})")
    ctx.exit()
