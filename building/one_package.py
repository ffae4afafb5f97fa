"""Put the packages of a checkout below the front, `kgroup`, with their imports rewritten.

A checkout has ten packages side by side. Installed like that, `clients` or `protocol` would clash
with packages of the same name in a user's project. So the wheel has one package: `protocol` becomes
`kgroup.protocol`, and so on.

The syntax tree says what is rewritten: imports, and dotted names of our modules in strings (tables
of commands, `-m` workers, loggers). Only these bytes change, so lines and comments stay. The result
is parsed again and compared with the tree that it should have. What is not understood stops the
build: a name that would silently mean another module is worse than no wheel.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

FRONT = "kgroup"
PACKAGES = (
    "protocol",
    "zk",
    "core_log",
    "compaction",
    "offsets",
    "groups",
    "clients",
    "broker",
    "spark_connector",
)

_ANY = "|".join(PACKAGES)
_DOTTED = re.compile(rf"(?<![\w./-])(?:{_ANY})(?:\.\w+)+(?::\w+)?")

_NO_MODULE = re.compile(
    r"broker\.(id|list|rack|version\.fallback|heartbeat|session)\b"
    r"|offsets\.(channel|commit|load|retention|storage|topic)\b"
    r"|zk\.(connect|connectiontimeout|read|sessiontimeout|synctime)\b"
    r"|\w+\.(json|sqlite|txt)$"
)
"""Dotted names that are no modules: Kafka's settings, and files in examples of commands."""

_UNDOTTED = re.compile(
    r"\b(core_log|spark_connector)\b(?!\.\w)"  # no English words, so a package is meant
    rf"|(^|[;\n]) *(from|import) ({_ANY})\b"  # code
    rf"|^({_ANY})\.$"
)
"""Strings that may name a package, in ways that are not rewritten."""

_TAKES_MODULE = {"__import__", "find_spec", "getLogger", "import_module"}


class NotUnderstood(Exception):
    """A place in the source that cannot be moved below the front. The text names it."""


def copy_below_front(source: Path, target: Path) -> None:
    """Copy the front of the checkout `source` to `target`, with the other packages below it.

    Raises NotUnderstood.
    """
    for package in PACKAGES:
        if (source / FRONT / f"{package}.py").exists() or (source / FRONT / package).exists():
            raise NotUnderstood(f"{FRONT}/{package}: the package {package} goes to this place")

    for package in (FRONT, *PACKAGES):
        below = target / FRONT if package == FRONT else target / FRONT / package
        for path in sorted((source / package).rglob("*")):
            if path.is_dir() or "__pycache__" in path.parts:
                continue

            copy = below / path.relative_to(source / package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in (".py", ".pyi"):
                text = path.read_text("utf-8")
                copy.write_text(rewrite(text, str(path.relative_to(source)), source), "utf-8")
            else:
                copy.write_bytes(path.read_bytes())


def rewrite(text: str, path: str, source: Path) -> str:
    """Return the text of a module with our modules' names below the front.

    `path` is for errors, `source` the checkout in which names are looked up. Raises NotUnderstood.
    """
    tree = ast.parse(text)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    places: dict[tuple[int, int], set[str]] = {}

    # Rename in the tree, and remember where.
    data = text.encode()
    line_starts = [0, *(newline.end() for newline in re.finditer(b"\n", data))]
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        names = _rename(node, f"{path}:{getattr(node, 'lineno', '')}", source)
        if names:
            assert isinstance(node, ast.stmt | ast.expr | ast.alias)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = line_starts[node.lineno - 1] + node.col_offset
            end = line_starts[node.end_lineno - 1] + node.end_col_offset
            places.setdefault((start, end), set()).update(names)

    # Do the same to the text, from its end, so that places before a change stay where they are.
    for (start, end), names in sorted(places.items(), reverse=True):
        part = _with_front(data[start:end].decode(), names)
        data = data[:start] + part.encode() + data[end:]

    if ast.dump(ast.parse(data)) != ast.dump(tree):
        raise NotUnderstood(f"{path}: an import or a string is written in an unusual way")
    return data.decode()


def rewrite_names(text: str, place: str, source: Path) -> str:
    """Return any text with the dotted names of our modules below the front.

    Raises NotUnderstood.
    """
    return _with_front(text, _modules_in(text, place, source))


def _rename(node: ast.AST, place: str, source: Path) -> set[str]:
    """Rename our modules in one node, and return their names."""
    match node:
        case ast.ImportFrom(module=str(module), level=0) if _is_ours(module):
            node.module = f"{FRONT}.{module}"
            return {module}

        case ast.Import(names=aliases):
            for alias in aliases:
                if _is_ours(alias.name):
                    raise NotUnderstood(f"{place}: import {alias.name}: write from … import …")

        case ast.Constant(value=str(value)):
            if _UNDOTTED.search(value):
                raise NotUnderstood(f"{place}: {value!r} may name a package: take it from __name__")
            names = _modules_in(value, place, source)
            node.value = _with_front(value, names)
            return names

        case ast.Call(args=[ast.Constant(value=str(value)), *_]) if value in PACKAGES:
            if ast.unparse(node.func).rpartition(".")[2] in _TAKES_MODULE:
                raise NotUnderstood(f"{place}: {value!r} names a package: take it from __name__")

        case (
            ast.Attribute(attr="parent", value=ast.Attribute(attr="parent"))
            | ast.Subscript(value=ast.Attribute(attr="parents"), slice=ast.Constant())
        ) if "__file__" in ast.unparse(node):
            raise NotUnderstood(f"{place}: the depth of this file differs: count it in __name__")

    return set()


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in PACKAGES


def _with_front(text: str, names: Iterable[str]) -> str:
    for name in names:
        text = re.sub(rf"(?<![\w./-]){re.escape(name)}(?!\w)", f"{FRONT}.{name}", text)
    return text


def _modules_in(text: str, place: str, source: Path) -> set[str]:
    """Return the dotted names of our modules, and of what they define, in a text."""
    names = {found[0] for found in _DOTTED.finditer(text)}
    modules = {name for name in names if _is_in_module(name, source)}

    for name in names - modules:
        if not _NO_MODULE.match(name):
            raise NotUnderstood(f"{place}: {name!r} is neither a module nor a known setting")
    return modules


def _is_in_module(name: str, source: Path) -> bool:
    """Return whether a dotted name is a module of the checkout, or something that one defines."""
    path = source
    parts = re.split("[.:]", name)

    while parts and (path / parts[0] / "__init__.py").exists():
        path /= parts.pop(0)
    file = path / "__init__.py"
    if parts and (path / f"{parts[0]}.py").exists():
        file = path / f"{parts.pop(0)}.py"

    if not parts:
        return True
    definition = rf"^(async )?(def|class) {parts[0]}\b|^{parts[0]}\b *[:=]"
    return re.search(definition, file.read_text("utf-8"), re.MULTILINE) is not None
