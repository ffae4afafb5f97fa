"""Print and connect: the parts that both commands share.

A command gathers a `Listing` and gives it to `show`. `show` prints a table with Kafka's columns, a
wide table with ours added, CSV, or one JSON envelope with a version. The command exits with 1 after
a failure or partial failure; `clients.command_line.command_group` has the other exits.
"""

import base64
import csv
import functools
import importlib.util
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from clients.command_line.printing import HAS_PRINTED, json_text, plain, print_text, say
from protocol.frozen import frozen

if TYPE_CHECKING:
    from clients.command_line.named_clusters import NamedCluster

T = TypeVar("T")

ENVELOPE_VERSION = 1
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

INTERRUPTED = "Interrupted"
"""The error of what a command did not do because it was interrupted."""

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"


# --- What is printed -----------------------------------------------------------------------------


@frozen
class Column:
    """A column with Kafka's title. `wide` columns are ours and are shown only on request."""

    title: str
    min_width: int = 0
    wide: bool = False
    optional: bool = False
    """True if a table in which no item has it leaves it out."""
    key: str = attrs.field()
    """The name in JSON and CSV; by default the title in snake_case."""
    text: Callable[[Any], str] = plain
    """Makes the text of a cell; JSON keeps the value."""
    style: Callable[[Any], str] | None = None
    """Names the colour of a cell on a terminal; "" for none."""

    row_text: Callable[[Mapping[str, Any]], str] | None = None
    """Makes the text of a cell from its whole row, in place of `text`."""

    def cell(self, item: Mapping[str, Any]) -> str:
        """Return the text of the cell in a row."""
        if self.row_text is not None:
            return plain(self.row_text(item))
        return plain(self.text(item.get(self.key)))

    @key.default
    def _key_of_title(self) -> str:
        return re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_")


@frozen
class Failure:
    """A failure to read or do one thing, while the rest went on."""

    what: str
    error: str
    message: str

    @classmethod
    def of(cls, what: str, error: Exception) -> "Failure":
        """Make a failure of an exception, with the name of Kafka's error or of the class."""
        code = getattr(error, "code", None)
        name = code.name if isinstance(code, Enum) else type(error).__name__
        return cls(what, name, error_text(error) or name)


def error_text(error: Exception) -> str:
    """Return the text of an error; where ACLs of ZooKeeper are the cause, it has what to do."""
    # Commands without a failure start without these.
    from zk.failures import describe

    return describe(error)


@frozen
class Listing:
    """The result of a command. `kind` is its noun; items have the columns' keys."""

    kind: str
    columns: Sequence[Column]
    items: Sequence[Mapping[str, Any]]
    errors: Sequence[Failure] = ()
    header: bool = True
    """False if the plain table has no header, as Kafka's lists of names."""
    table_key: str | None = None
    """The key of items that are shown in tables of their own, with an empty line between two."""
    verdict: str | None = None
    """One sentence on all of it, for the kinds in VERDICTS."""
    summaries: Sequence[str] = ()
    """Sentences for people, on stderr beside a wide table, or where stdout is a terminal."""


VERDICTS = frozenset({"at-risk", "doctor", "events", "health", "history"})
"""Kinds of listings that end with a verdict."""


def is_table(output: str) -> bool:
    """Return whether a format of `--output` is for people: a table, or Kafka's sentences instead.

    wide is a table with more columns. Sentences have none, so they are the same in both.
    """
    return output in ("table", "wide")


def show(listing: Listing, output: str, *, verbose: bool = False) -> None:
    """Print a listing in a format of `--output`. Exits with 1 if it has failures."""
    # JSON has every column, and the failures too.
    if output == "json":
        print_text(envelope(listing))
    else:
        wide = verbose or output == "wide"
        columns = [column for column in listing.columns if wide or not column.wide]

        if output == "csv":
            text = csv_text(columns, listing.items)
        elif is_coloured():
            text = ""
            print_coloured(columns, _tables(listing), header=wide or listing.header)
        else:
            text = "\n\n".join(
                table(columns, items, header=wide or listing.header) for items in _tables(listing)
            )

        if text:
            print_text(text)
        if listing.verdict is not None and output != "csv":
            say()
            say(listing.verdict)

        if is_table(output) and (wide or sys.stdout.isatty()):
            for sentence in listing.summaries:
                say(sentence, err=True)

        # Neither table nor CSV has room for failures.
        report(listing.errors)

    # Scripts look at the exit code, also where the rest was printed.
    if listing.errors:
        raise click.exceptions.Exit(exit_code(listing.errors))


def exit_code(errors: Iterable[Failure]) -> int:
    """Return 130 if the command was interrupted before it had done everything, else 1."""
    is_interrupted = any(error.error == INTERRUPTED for error in errors)
    return EXIT_INTERRUPTED if is_interrupted else EXIT_FAILED


def show_verdicts(
    kind: str, column: str, verdicts: Mapping[str, Exception | None], sentence: str, output: str
) -> None:
    """Print `sentence` for each item that succeeded, and the failures; exit 1 at a failure."""
    for name, error in verdicts.items():
        if error is None and is_table(output):
            say(sentence.format(name))
    show_what_was_said(kind, column, verdicts, output)


def say_done(sentence: str, output: str, *, several: bool) -> None:
    """Print the sentence of one thing when it is done.

    It is the result, in place of a row. JSON and CSV have rows, at the end: meanwhile each of
    `several` things is said on stderr.
    """
    if is_table(output) or several:
        # Else nobody knows it who does not wait for the end (fault scale-C3).
        say(sentence, err=not is_table(output))


def show_what_was_said(
    kind: str, column: str, verdicts: Mapping[str, Exception | None], output: str
) -> None:
    """Show the result of things whose sentences were printed; exit 1 at a failure."""
    succeeded = [name for name, error in verdicts.items() if error is None]
    failures = [Failure.of(name, error) for name, error in verdicts.items() if error is not None]
    items = [] if is_table(output) else [{column.lower(): name} for name in succeeded]
    show(Listing(kind, (Column(column),), items, failures), output)


def report(failures: Iterable[Failure]) -> None:
    """Print one line per failure on stderr."""
    for failure in failures:
        # A group may have no name.
        say(f"error: {failure.what or repr('')}: {failure.message}", err=True)


def _tables(listing: Listing) -> list[list[Mapping[str, Any]]]:
    """Return the items of each table, in the order in which the tables begin."""
    tables: dict[object, list[Mapping[str, Any]]] = {}
    for item in listing.items:
        key = None if listing.table_key is None else item.get(listing.table_key)
        tables.setdefault(key, []).append(item)
    return list(tables.values())


def table(
    columns: Sequence[Column], items: Sequence[Mapping[str, Any]], *, header: bool = True
) -> str:
    """Return aligned columns, with a header; "" if there is no item.

    Optional columns that no item has are left out.
    """
    if not items:
        return ""

    columns = _present(columns, items)
    rows = [[column.title for column in columns]] if header else []
    rows += [[column.cell(item) for column in columns] for item in items]
    widths = _widths(columns, rows)
    return "\n".join(" ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def _present(columns: Sequence[Column], items: Sequence[Mapping[str, Any]]) -> list[Column]:
    return [
        column
        for column in columns
        if not column.optional or any(item.get(column.key) not in (None, "") for item in items)
    ]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(column.min_width, *map(len, cells))
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True)
    ]


def is_coloured() -> bool:
    """Return whether stdout is a terminal, rich is there, and NO_COLOR is not set or empty."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and importlib.util.find_spec("rich") is not None
    )


def is_screen() -> bool:
    """Return whether stdout is a terminal on which what was printed can be replaced."""
    # A shell in an editor shows the signs for that, or nothing (fault users-21, was: True).
    can_move = os.environ.get("TERM") not in ("dumb", "unknown")
    return sys.stdout.isatty() and can_move


def print_coloured(
    columns: Sequence[Column], tables: Iterable[Sequence[Mapping[str, Any]]], *, header: bool
) -> None:
    """Print tables as `table` makes them, in colours, each line cut at the terminal's width."""
    from rich.console import Console
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for items in filter(None, tables):
        if text:
            text.append("\n")
        shown = _present(columns, items)
        titles = [[column.title for column in shown]] if header else []
        rows = [[column.cell(item) for column in shown] for item in items]
        widths = _widths(shown, [*titles, *rows])
        for cells in titles:
            text.append(" ".join(map(str.ljust, cells, widths)) + "\n", "bold")
        for item, cells in zip(items, rows, strict=True):
            for column, cell, width in zip(shown, cells, widths, strict=True):
                style = column.style(item.get(column.key)) if column.style else ""
                text.append(cell, style)
                text.append(" " * (width - len(cell) + 1))
            text.append("\n")
    Console(highlight=False).print(text, end="")


def csv_text(columns: Sequence[Column], items: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV (RFC 4180) with a header of keys and empty fields for None.

    Truth values and lists are as in JSON. Names are those of the table; JSON has them as they are.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([column.key for column in columns])
    writer.writerows([_csv_field(item.get(column.key)) for column in columns] for item in items)
    return buffer.getvalue().rstrip("\n")


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    return plain(json_text(value) if isinstance(value, bool | list | tuple) else value)


def envelope(listing: Listing) -> str:
    """Return `{"kind", "version", "items", "errors"}`, and the verdict of kinds that have one.

    Each item has every column, or null.
    """
    keys = [column.key for column in listing.columns]
    content: dict[str, Any] = {
        "kind": listing.kind,
        "version": ENVELOPE_VERSION,
        "items": [{key: item.get(key) for key in keys} for item in listing.items],
        "errors": [attrs.asdict(failure) for failure in listing.errors],
    }
    if listing.kind in VERDICTS:
        content["verdict"] = listing.verdict
    return json_text(content, indent=2)


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return the JSON field of bytes: `name` if they are UTF-8 or null, else `name_base64`."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


# --- Where a command connects --------------------------------------------------------------------


@frozen
class Target:
    """The addresses and client settings of a command.

    `bootstrap` is None if only ZooKeeper is given; the brokers registered there are used then.
    `typed` has the options of them that were typed, with their values.
    """

    bootstrap: str | None
    zookeeper: str | None
    settings: Mapping[str, str] = attrs.field(repr=False)  # it may have passwords
    timeout_ms: int
    typed: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def options(self) -> str:
        """Return what goes behind a command that is named as the next one.

        Else it would be for the cluster of the environment.
        """
        return "".join(f" {option} {shlex.quote(value)}" for option, value in self.typed.items())

    def elsewhere(self, bootstrap: str) -> "Target":
        """Return the target of other brokers, with the same settings."""
        typed = {option: value for option, value in self.typed.items() if option == CONFIG_OPTION}
        typed = {BOOTSTRAP_OPTION: bootstrap, **typed}
        # Or the next command would take the one of the environment, which is another cluster's.
        if self.zookeeper is not None:
            typed["--zookeeper"] = ""
        return attrs.evolve(self, bootstrap=bootstrap, zookeeper=None, typed=typed)


def zookeeper_address(text: str | None) -> str | None:
    """Return the connect string; None if it is empty. Raises UsageError if it is malformed."""
    if text is None or not text.strip():
        return None

    for server in text.partition("/")[0].split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or int(match["port"] or 0) > MAX_PORT:
            raise click.UsageError(f"ZooKeeper's address {text!r} is not host:port[,…][/chroot]")

    return text.strip()


MAX_PORT = 65_535
# A host or [IPv6], and perhaps a port; what belongs to URLs is refused.
_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]@?#]+)(:(?P<port>[0-9]{1,5}))?")


def target_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that say where to connect; the command gets them as its `target`."""
    return _with_options(command, TARGET_OPTIONS)


def target_options_beside_cluster(command: Callable[..., T]) -> Callable[..., T]:
    """Add the same to a command in which `--cluster` means something else; `-c` stays."""
    return _with_options(command, (_cluster_option("-c"), *TARGET_OPTIONS[1:]))


def _with_options(command: Callable[..., T], options: Sequence[Any]) -> Callable[..., T]:
    @functools.wraps(command)
    def with_target(*args: Any, **kwargs: Any) -> T:
        chosen = {name: kwargs.pop(name) for name in TARGET_PARAMETERS}
        return command(*args, target=target_of(click.get_current_context(), chosen), **kwargs)

    # Decorators apply from the inside out, so the help lists them in this order.
    for option in reversed(options):
        with_target = option(with_target)
    return with_target


def target_of(context: click.Context, chosen: Mapping[str, Any]) -> Target:
    """Return the target of a command line, whose parameters in TARGET_PARAMETERS are `chosen`.

    An address that is typed counts first, then a cluster that is typed, then the file that is
    typed, then the environment's addresses; a cluster that the environment or the file of clusters
    names counts only where no address is given. Raises UsageError, OSError and SettingError.
    """
    typed = ParameterSource.COMMANDLINE
    is_named = context.get_parameter_source("cluster") is typed
    settings = read_properties(chosen["command_config"])
    timeout_ms = chosen["timeout"]

    def nearest(name: str, setting: str) -> str | None:
        # An empty one takes that of the environment away.
        address: str | None = chosen[name] or None
        if address is not None and context.get_parameter_source(name) is typed:
            return address
        # Those of the file and of the environment may be of other clusters (fault strangers-17).
        if is_named:
            return None
        return settings.get(setting) or address

    bootstrap = nearest("bootstrap_server", "bootstrap.servers")
    zookeeper = nearest("zookeeper", "zookeeper.connect")
    if is_named or (bootstrap is None and zookeeper is None):
        cluster = _named_cluster(chosen["cluster"])
        if cluster is not None:
            own = read_properties(cluster.command_config)
            settings = settings or own
            bootstrap = bootstrap or cluster.bootstrap_server or own.get("bootstrap.servers")
            zookeeper = zookeeper or cluster.zookeeper or own.get("zookeeper.connect")
            if context.get_parameter_source("timeout") is not typed:
                timeout_ms = cluster.timeout_ms or timeout_ms

    # Without any address, the default broker; ZooKeeper alone names its brokers itself.
    zookeeper = zookeeper_address(zookeeper)
    if bootstrap is None and zookeeper is None:
        bootstrap = DEFAULT_BOOTSTRAP_SERVER
    options = {
        option: str(chosen[name])
        for name, option in _SPELLINGS.items()
        if context.get_parameter_source(name) is typed
    }
    return Target(bootstrap, zookeeper, settings, timeout_ms, options)


BOOTSTRAP_OPTION, CONFIG_OPTION = "--bootstrap-server", "--command-config"
_SPELLINGS = {
    "cluster": "-c",
    "bootstrap_server": BOOTSTRAP_OPTION,
    "zookeeper": "--zookeeper",
    "command_config": CONFIG_OPTION,
}


def _named_cluster(name: str | None) -> "NamedCluster | None":
    """Return the cluster of this name, or the default one; None if there is none."""
    from clients.command_line.named_clusters import read_named_clusters

    known = read_named_clusters()
    name = name or known.default
    return None if name is None else known.find(name)


TARGET_PARAMETERS = ("bootstrap_server", "zookeeper", "command_config", "timeout", "cluster")


def _cluster_option(*names: str) -> Any:
    return click.option(
        *names,
        "cluster",
        envvar="KGROUP_CLUSTER",
        metavar="NAME",
        help="A cluster of `kgroup clusters`, instead of addresses.  [env: KGROUP_CLUSTER]",
    )


TARGET_OPTIONS = (
    _cluster_option("-c", "--cluster"),
    click.option(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        "bootstrap_server",
        envvar="KGROUP_BOOTSTRAP_SERVER",
        metavar="H:P[,…]",
        help=f"Brokers to connect to first.  [default: {DEFAULT_BOOTSTRAP_SERVER}, or those "
        "registered in --zookeeper; env: KGROUP_BOOTSTRAP_SERVER]",
    ),
    click.option(
        "--zookeeper",
        "--zookeeper.connect",
        "zookeeper",
        envvar="KGROUP_ZOOKEEPER",
        metavar="H:P[,…][/CHROOT]",
        help="ZooKeeper, for groups and offsets in it.  [env: KGROUP_ZOOKEEPER]",
    ),
    click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Properties file with settings of the client.",
    ),
    click.option(
        "--timeout",
        type=click.IntRange(min=1),
        default=5000,
        show_default=True,
        metavar="MS",
        help="Longest time for one request.",
    ),
)

SHARED_NAMES = {
    "-c",
    "--cluster",
    "-b",
    "--bootstrap-server",
    "--bootstrap-servers",
    "--zookeeper",
    "--zookeeper.connect",
    "--command-config",
    "--timeout",
    "-o",
    "--output",
}
"""Every spelling of the shared options, each of which takes a value."""

_OUTPUT = f"{__name__}.output"


def _note_output(context: click.Context, _: click.Parameter, output: str) -> str:
    context.meta[_OUTPUT] = output
    return output


def show_failure(context: click.Context, error: Exception, message: str) -> None:
    """Print the failure of a whole command, if it was to print JSON and has printed nothing."""
    if context.meta.get(_OUTPUT) != "json" or context.meta.get(HAS_PRINTED):
        return
    # A program would have to read stderr (fault strangers-179).
    command = context.invoked_subcommand or ""
    failure = Failure(command, Failure.of(command, error).error, message)
    print_text(envelope(Listing(command, (), (), [failure])))


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "csv"]),
    default="table",
    show_default=True,
    callback=_note_output,
    help="Format of the output; wide is a table with more columns.",
)


class KeyValue(click.ParamType):  # type: ignore[type-arg]
    """Reads `key=value` into a pair; the first `=` splits it."""

    name = "k=v"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split the text. Raises UsageError without a `=`, or with nothing before it."""
        # click also passes values that are converted already.
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key.strip(), rest


def read_properties(path: Path | None) -> dict[str, str]:
    """Read a Java properties file; {} for no file. Raises UsageError, OSError, SettingError."""
    from protocol.settings import parse_properties

    try:
        return {} if path is None else parse_properties(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path}: not UTF-8: {error}") from None
