"""Write the manual pages of both commands, one for each sub-command, from click's help.

`make man` writes them into build/man, and `man -l build/man/man1/kgroup.1` shows one. The
language is that of man(7): a line that begins with a dot is a macro.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

# The broker's command stands above this package, so both are imported by name.
PROGRAMS = {"kgroup": "clients.kgroup.command", "kbroker": "broker.kbroker.command"}


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def main(directory: Path) -> None:
    """Write all pages into DIRECTORY, as `kgroup-describe.1` and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    for program, module in PROGRAMS.items():
        for context in contexts(import_module(module).main, program):
            path = directory / f"{page_name(context)}.1"
            path.write_text(man_page(context), "utf-8")


def contexts(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Yield the context of a command, then those of its sub-commands at any depth."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context
    for sub_name, sub_command in sub_commands(context):
        yield from contexts(sub_command, sub_name, context)


def sub_commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the names and commands of a group; nothing for a command that is none."""
    if not isinstance(context.command, click.Group):
        return
    for name in context.command.list_commands(context):
        sub_command = context.command.get_command(context, name)
        if sub_command is not None and not sub_command.hidden:
            yield name, sub_command


def man_page(context: click.Context) -> str:
    """Return the text of the page of one command."""
    command = context.command
    name = page_name(context)
    usage = [context.command_path, *command.collect_usage_pieces(context)]

    lines = [
        f'.TH "{name.upper()}" "1"',
        *[".SH NAME", f"{escaped(name)} \\- {escaped(summary(command))}"],
        *[".SH SYNOPSIS", escaped(" ".join(usage))],
        *[".SH DESCRIPTION", *paragraphs(command.help or "")],
        *[".SH OPTIONS", *options(context)],
    ]

    if rows := list(sub_commands(context)):
        lines.append(".SH COMMANDS")
        for sub_name, sub_command in rows:
            lines += entry(f"{name}-{sub_name}(1)", summary(sub_command))

    # Each epilog is a list of examples under its own title.
    if command.epilog:
        lines.append(".SH EXAMPLES")
        lines += paragraphs(re.sub(r"\AExamples?:\n", "", unmarked(command.epilog)), verbatim=True)
    return "\n".join(lines) + "\n"


def page_name(context: click.Context) -> str:
    """Return the name of the page: the words of the command, with dashes between them."""
    return context.command_path.replace(" ", "-")


def summary(command: click.Command) -> str:
    """Return the first sentence of the help."""
    return command.get_short_help_str(limit=1000).removesuffix(".")


def options(context: click.Context) -> Iterator[str]:
    """Yield the lines for the options that the help shows."""
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from entry(*record)


def entry(term: str, text: str) -> list[str]:
    """Return a bold term with its text below it."""
    return [".TP", f"\\fB{escaped(term)}\\fR", *paragraphs(text)]


def paragraphs(text: str, *, verbatim: bool = False) -> Iterator[str]:
    """Yield the lines of paragraphs; those that click must not wrap keep their line ends."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(text))):
        if number:
            yield ".PP"
        is_kept = verbatim or paragraph.startswith("\b")
        lines = [escaped(line) for line in unmarked(paragraph).splitlines()]
        yield from [".nf", *lines, ".fi"] if is_kept else lines


def unmarked(text: str) -> str:
    """Return the text without click's mark for paragraphs that are not wrapped."""
    return text.replace("\b\n", "")


def escaped(line: str) -> str:
    r"""Return a line that shows as it is.

    A dot or a quote at its beginning would make it a macro, and a plain dash may be shown as one
    that cannot be pasted into a shell.
    """
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    main()
