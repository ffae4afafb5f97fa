"""Find a piece of code by its syntax tree, and put another in its place.

A *place* is "module:function", as in "groups.zookeeper.tree:GroupTree.release"; instead of a
function it may name a class, or nothing ("zk.session:"). What stands there is an expression, or one
or more statements; formatting, comments and line breaks do not matter.

Modules are moved and functions renamed: code that is not where it was is looked for in the whole
module, and then in all packages. The first of these in which it stands exactly once is meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import dedent, indent

import attrs

PACKAGES = (
    *("protocol", "zk", "core_log", "compaction", "offsets", "groups", "clients", "broker"),
    *("spark_connector", "kgroup"),
)

Code = ast.expr | Sequence[ast.stmt]
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class NoSuchPlace(LookupError):
    """A piece of code stands nowhere, or more than once."""


@attrs.frozen
class Change:
    """A source file as it is, and as it is with other code in one place."""

    file: Path
    before: str
    after: str


def plan_change(root: Path, place: str, code: str, instead: str) -> Change:
    """Say what makes `code`, in this place below `root`, `instead`. Changes no file.

    An expression is found wherever it stands, if `instead` is an expression too; else both are
    statements. `instead` may be empty. Raises NoSuchPlace.
    """
    wanted, new = _parsed(dedent(code)).body, _parsed(dedent(instead) or "pass").body
    expression, new_expression = _as_expression(wanted), _as_expression(new)

    if expression and new_expression:
        file, node = _find(root, place, expression)
        text = f"({ast.unparse(new_expression)})"
    else:
        file, node = _find(root, place, wanted)
        text = "\n".join(map(ast.unparse, new))

    before = file.read_text()
    return Change(file, before, _replaced(before, node, text))


def _as_expression(code: Sequence[ast.stmt]) -> ast.expr | None:
    return code[0].value if len(code) == 1 and isinstance(code[0], ast.Expr) else None


# --- finding ----------------------------------------------------------------------------------


def _find(root: Path, place: str, wanted: Code) -> tuple[Path, Code]:
    counts = []

    for scope, trees in _scopes(root, place):
        matches = [(file, match) for file, tree in trees for match in _matches(tree, wanted)]
        if len(matches) == 1:
            return matches[0]
        counts.append(f"{len(matches)} times in {scope}")

    text = ast.unparse(wanted if isinstance(wanted, ast.expr) else wanted[0]).splitlines()[0]
    raise NoSuchPlace(f"{text!r} stands {', '.join(counts)}")


def _scopes(root: Path, place: str) -> Iterator[tuple[str, list[tuple[Path, ast.AST]]]]:
    """Where code of `place` is looked for, narrow to wide."""
    module, _, function = place.partition(":")
    file = root / f"{module.replace('.', '/')}.py"

    if file.is_file():
        tree = _parsed(file.read_text())
        if function:
            yield place, [(file, node) for node in _definitions(tree, function.split("."))]
        yield module, [(file, tree)]

    files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
    yield "all packages", [(file, _parsed(file.read_text())) for file in files]


def _definitions(tree: ast.AST, names: Sequence[str]) -> list[ast.AST]:
    """The functions and classes of a qualified name; several for a property that can be set."""
    trees = [tree]
    for name in names:
        trees = [
            node
            for outer in trees
            for node in ast.walk(outer)
            if isinstance(node, Definition) and node.name == name and node is not outer
        ]
    return trees


def _matches(tree: ast.AST, wanted: Code) -> Iterator[Code]:
    for node in _nodes(tree):
        if isinstance(wanted, ast.expr):
            if isinstance(node, ast.expr) and _is_same(node, wanted):
                yield node
            continue

        for statements in _bodies(node):
            for start in range(len(statements) - len(wanted) + 1):
                window = statements[start : start + len(wanted)]
                if all(map(_is_same, window, wanted)):
                    yield window


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those within an f-string: Python 3.11 does not know their columns."""
    yield tree
    if not isinstance(tree, ast.JoinedStr):
        for child in ast.iter_child_nodes(tree):
            yield from _nodes(child)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value


def _is_same(one: ast.AST, other: ast.AST) -> bool:
    return type(one) is type(other) and ast.dump(one) == ast.dump(other)


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


# --- replacing --------------------------------------------------------------------------------


def _replaced(source: str, code: Code, text: str) -> str:
    """`source` with `text` where `code` stood."""
    nodes = [code] if isinstance(code, ast.expr) else code
    first, last = nodes[0], nodes[-1]
    decorators: list[ast.expr] = getattr(first, "decorator_list", [])
    first_line = min(node.lineno for node in (first, *decorators))
    assert last.end_lineno is not None
    assert last.end_col_offset is not None

    lines = source.encode().splitlines(keepends=True)  # columns of a syntax tree count bytes
    before = b"".join(lines[: first_line - 1]) + lines[first_line - 1][: first.col_offset]
    after = lines[last.end_lineno - 1][last.end_col_offset :] + b"".join(lines[last.end_lineno :])
    indented = indent(text, " " * first.col_offset).lstrip(" ")

    return (before + indented.encode() + after).decode()
