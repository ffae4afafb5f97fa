"""How both commands start and end: sub-commands imported late, errors in one line, exit codes.

0 all done, 1 something failed or partly failed, 2 wrong usage, 130 interrupted.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import click

from clients.output import EXIT_FAILED

P = ParamSpec("P")
T = TypeVar("T")

EXIT_MISUSED = 2
EXIT_INTERRUPTED = 130


class CommandFailed(click.ClickException):
    """A user's mistake, or the world's: one line, no traceback, exit code 1."""

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        """Print it as all our errors."""
        click.echo(f"error: {self.format_message()}", file=file or sys.stderr)


class Misused(CommandFailed):
    """Wrong usage that shows only once the work has begun, in a setting above all."""

    exit_code = EXIT_MISUSED


class CommandGroup(click.Group):
    """Sub-commands that are imported when they are used, so that `--help` is quick.

    `rows` gives each name its module, whose `command` is run, and its line in the help.
    `expected` gives the exceptions that are no bug, `misuse` those of them that are wrong usage;
    they are called only when something was raised.
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
        """In the order of the rows."""
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the sub-command's module."""
        if cmd_name not in self.rows:
            return None
        found = import_module(self.rows[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The rows, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.rows.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; what it raises becomes a line and an exit code, unless a bug."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            causes = list(leaves(error))
            if not all(isinstance(cause, (*self.expected(), OSError)) for cause in causes):
                raise
            failed = Misused if isinstance(causes[0], self.misuse()) else CommandFailed
            raise failed(message_of(causes[0])) from error


def leaves(error: Exception) -> Iterator[Exception]:
    """The exceptions a task group gathered, or the one that was raised."""
    if isinstance(error, ExceptionGroup):
        for nested in error.exceptions:
            yield from leaves(nested)
    else:
        yield error


def message_of(error: Exception) -> str:
    """One line that says what went wrong, for exceptions without a text too."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def version_option() -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`--version`, from the installed distribution."""
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
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("kgroup")
    except PackageNotFoundError:
        number = "(not installed)"
    click.echo(f"{ctx.find_root().info_name} {number}")
    ctx.exit()
