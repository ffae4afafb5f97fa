"""Marks of faults: a comment at each remedy, and a pytest mark at each test that holds it.

A remedy has a comment that ends with the fault's id, above the statement that it speaks of, or
behind it on the same line:

    # A request that was sent may still arrive behind the marker (fault groups-2).
    if state.is_unanswered:
        return Send(state.request)

Where the remedy is another value, the mark has the expression that stood there before. It belongs
to an assignment, a `return` or an argument by name:

    # Names say nothing: both topics have them (fault core-R1, was: True).
    is_same_topic = identity.is_same_topic(log.identity)

`@pytest.mark.fault("groups-2")` marks a test, a class or, as `pytestmark`, a module that must fail
without the statement. A fault that turned out to be none has a test alone, which says so:
`@pytest.mark.fault("core-R3", needs_no_remedy="the reason")`.

`make mutants` takes the marked statements away one by one. Nothing is kept beside the code: the
table of faults, remedies and tests is read from the marks (`python -m tests.mutants table`).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from tests.mutants.places import PACKAGES

FAULT = re.compile(r"\(fault ([a-z]+-[A-Z]?\d+)(?:, was: (.+))?\)")


class MisplacedMark(ValueError):
    """A comment marks no statement, or a decorator names no fault."""


@attrs.frozen
class MarkedRemedy:
    """A statement of the product that a comment marks: `line` is the comment's, from 1."""

    fault: str
    file: Path
    line: int


@attrs.frozen
class MarkedTest:
    """A test that must fail without the remedies of `fault`; `test_id` is pytest's."""

    fault: str
    test_id: str
    needs_no_remedy: bool = False


def find_remedies(root: Path) -> list[MarkedRemedy]:
    """Return the marked remedies of all packages below `root`, by file and line."""
    return [
        MarkedRemedy(fault, file, line)
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
        for line, fault in _marking_comments(file.read_text())
    ]


def find_tests(root: Path) -> list[MarkedTest]:
    """Return the marked tests below `root`/tests. Raises MisplacedMark."""
    return [
        test
        for file in sorted((root / "tests").rglob("test_*.py"))
        if "mark.fault" in (source := file.read_text())
        for test in _marked_tests(ast.parse(source), file.relative_to(root).as_posix())
    ]


def table(root: Path) -> list[tuple[str, str, str]]:
    """Return a row for each fault: its id, the places of its remedies, and its tests."""
    remedies = find_remedies(root)
    tests = find_tests(root)
    faults = {mark.fault for mark in (*remedies, *tests)}

    return [
        (
            fault,
            ", ".join(
                f"{remedy.file.relative_to(root)}:{remedy.line}"
                for remedy in remedies
                if remedy.fault == fault
            ),
            ", ".join(test.test_id for test in tests if test.fault == fault),
        )
        for fault in sorted(faults, key=_in_order)
    ]


def _in_order(fault: str) -> tuple[str, str, int]:
    match = re.fullmatch(r"([a-z]+)-([A-Z]?)(\d+)", fault)
    assert match is not None
    return match[1], match[2], int(match[3])


# --- remedies -----------------------------------------------------------------------------------


def _marking_comments(source: str) -> Iterator[tuple[int, str]]:
    if "(fault " not in source:
        return

    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for match in FAULT.finditer(token.string):
                yield token.start[0], match[1]


def without(source: str, *lines: int) -> str:
    """Return the source without the remedies that the comments in these lines mark.

    Where a mark has an earlier value, the value goes back to it. Otherwise the statement goes: the
    branch of an `if`, whose `else` stays; a `with` and a `try`, whose body stays; all of others.
    Raises MisplacedMark.
    """
    tree = ast.parse(source)
    marked = []
    for line in lines:
        was = _value_before(source, line)
        node = _marked_node(tree, source, line, has_value=was is not None)
        if was is None:
            marked.append(node)
        else:
            node.value = was  # type: ignore[attr-defined]

    class Remover(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:  # type: ignore[override]
            return _rest(node) if node in marked else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Remover().visit(tree))) + "\n"


def _value_before(source: str, line: int) -> ast.expr | None:
    """Return the expression in the mark on a line; None if it has none. Raises MisplacedMark."""
    match = FAULT.search(source.splitlines()[line - 1])
    if match is None or match[2] is None:
        return None
    try:
        return ast.parse(match[2], mode="eval").body
    except SyntaxError as error:
        raise MisplacedMark(f"line {line}: {match[2]} is no expression") from error


def _marked_node(
    tree: ast.Module, source: str, line: int, *, has_value: bool
) -> ast.stmt | ast.keyword:
    """Return the statement on the line of the comment, or the first one below the comment."""
    kinds: tuple[type[ast.AST], ...] = (ast.stmt,)
    if has_value:
        kinds = ast.Assign, ast.AnnAssign, ast.Return, ast.keyword
    nodes: list[Any] = [node for node in ast.walk(tree) if isinstance(node, kinds)]

    text = source.splitlines()[line - 1]
    is_behind_code = not text.lstrip().startswith("#")
    if is_behind_code:
        covering = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
        if covering:
            return max(covering, key=_place)
    else:
        below = [node for node in nodes if _first_line(node) > line]
        column = len(text) - len(text.lstrip())
        if below:
            nearest = min(below, key=_place)
            if nearest.col_offset == column:
                return nearest

    raise MisplacedMark(f"line {line} marks no statement: {text.strip()}")


def _place(node: Any) -> tuple[int, int]:
    return _first_line(node), node.col_offset


def _first_line(node: Any) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(part.lineno for part in decorators)])


def _rest(node: ast.AST) -> list[ast.stmt]:
    """Return what stays of a statement that is taken away."""
    match node:
        case ast.If():
            rest = node.orelse
        case ast.With() | ast.AsyncWith() | ast.Try():
            rest = node.body
        case _:
            rest = []
    return rest or [ast.Pass()]


# --- tests --------------------------------------------------------------------------------------


def _marked_tests(tree: ast.Module, path: str) -> Iterator[MarkedTest]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and _is_named(statement.targets, "pytestmark"):
            yield from _tests_of(_marks_of(statement.value), path)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _tests_of(statement.decorator_list, f"{path}::{statement.name}")
        if isinstance(statement, ast.ClassDef):
            for method in statement.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    test_id = f"{path}::{statement.name}::{method.name}"
                    yield from _tests_of(method.decorator_list, test_id)


def _is_named(targets: Sequence[ast.expr], name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _marks_of(value: ast.expr) -> Sequence[ast.expr]:
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _tests_of(decorators: Sequence[ast.expr], test_id: str) -> Iterator[MarkedTest]:
    for decorator in decorators:
        if not isinstance(decorator, ast.Call):
            continue
        if ast.unparse(decorator.func) != "pytest.mark.fault":
            continue

        faults = [ast.literal_eval(argument) for argument in decorator.args]
        if not faults or not all(FAULT.fullmatch(f"(fault {fault})") for fault in faults):
            raise MisplacedMark(f"{test_id} names no fault: {ast.unparse(decorator)}")
        for fault in faults:
            yield MarkedTest(fault, test_id, needs_no_remedy=bool(decorator.keywords))
