"""Write kgroup/blocking.pyi: what `kgroup.blocking` has, for type checkers, editors and the site.

The twins there are made when they are imported (`clients.blocking`): who only reads their source
sees no method of them. The stub is made from the sources of the asyncio clients. Its methods have
no `async`, and return what `clients.blocking` converts results to. A test holds the file to its
sources; after a change of a client, `python -m building.blocking_stub` writes it anew.
"""

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from clients.admin import Admin
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from clients.simple_consumer import SimpleConsumer

STUB = Path(__file__).resolve().parent.parent / "kgroup" / "blocking.pyi"
CLIENTS = Admin, ConsumerConnector, Producer, SimpleConsumer

OF_THE_TWIN = {
    "AbstractAsyncContextManager": "from contextlib import AbstractContextManager",
    "AsyncIterator": "from collections.abc import Iterator",
    "Future": "from concurrent.futures import Future",
    "MessageStream": "from clients.blocking import BlockingStream as MessageStream",
    "Self": "from typing import Self",
    "TracebackType": "from types import TracebackType",
}
"""Where the stub has what a twin returns in place of what its original does, by the latter."""

BEGIN_AND_END = """
def __enter__(self) -> Self: ...
def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None: ...
"""


def render_stub() -> str:
    """Return the text of the stub, formatted."""
    front = importlib.import_module("kgroup.blocking")
    classes = [_render_class(client) for client in CLIENTS]
    tree = ast.parse("\n\n".join(classes))
    imports = {line for client in CLIENTS for line in _imports(client, _names(tree))}
    text = "\n".join(
        [
            f'"""{front.__doc__}"""',
            "# Written by building/blocking_stub.py.",
            *sorted(imports),
            f"__all__ = {front.__all__!r}",
            *classes,
        ]
    )
    for command in (["check", "--fix", "--quiet", "--select", "I,UP"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, text=True, check=True, capture_output=True).stdout
    return text


def _render_class(client: type) -> str:
    original = _parse_class(client)
    body = [
        ast.Expr(ast.Constant(f"A blocking `kgroup.{client.__name__}`, which says more.")),
        *_attributes(original),
        *(_as_blocking(method) for method in _methods(original)),
        *(statement for statement in original.body if isinstance(statement, ast.Assign)),
        *ast.parse(BEGIN_AND_END).body,
    ]
    return ast.unparse(ast.fix_missing_locations(ast.ClassDef(client.__name__, [], [], body, [])))


def _parse_class(client: type) -> ast.ClassDef:
    tree = ast.parse(inspect.getsource(client))
    (node,) = tree.body
    assert isinstance(node, ast.ClassDef)
    return node


def _attributes(client: ast.ClassDef) -> Iterator[ast.stmt]:
    """Yield the attributes that the class declares, and the public ones of `__init__`."""
    yield from (statement for statement in client.body if isinstance(statement, ast.AnnAssign))
    (init,) = (method for method in _functions(client) if method.name == "__init__")
    arguments = [*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs]
    types = {argument.arg: argument.annotation for argument in arguments}
    for statement in init.body:
        match statement:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(argument)):
                annotation = types.get(argument)
                if annotation is not None and not name.startswith("_"):
                    yield ast.AnnAssign(ast.Name(name), annotation, None, 1)
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                if not name.startswith("_"):
                    yield ast.AnnAssign(ast.Name(name), annotation, None, 1)


def _functions(client: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node for node in client.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _methods(client: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield what users call; of a method with overloads these, each with its docstring."""
    functions = _functions(client)
    overloaded = {function.name for function in functions if _is_overload(function)}
    for function in functions:
        if function.name.startswith("_") and function.name != "__init__":
            continue
        if function.name not in overloaded:
            yield function
        elif _is_overload(function):
            documented = next(
                f for f in functions if f.name == function.name and not _is_overload(f)
            )
            function.body = documented.body
            yield function


def _is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in function.decorator_list)


def _as_blocking(method: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    """Return the method as a caller in another thread has it, without what it does."""
    docstring = ast.get_docstring(method, clean=False)
    method.args.kw_defaults = [_shown(default) for default in method.args.kw_defaults]
    method.args.defaults = [_shown(default) for default in method.args.defaults]
    says = ast.Constant(... if docstring is None else docstring)
    return ast.FunctionDef(
        method.name,
        method.args,
        [ast.Expr(says)],
        method.decorator_list,
        method.returns and _Converted().visit(method.returns),
    )


Default = TypeVar("Default", ast.expr, ast.expr | None)


def _shown(default: Default) -> Default | ast.Constant:
    return ast.Constant(...) if isinstance(default, ast.Call) else default


class _Converted(ast.NodeTransformer):
    """What `clients.blocking` makes of a result."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        result: ast.expr = self.visit(node.slice)
        if ast.unparse(node.value) == "Sending":  # a coroutine, which the twin awaits
            return result
        return ast.Subscript(self.visit(node.value), result)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name("Future") if ast.unparse(node) == "asyncio.Future" else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(node.id.replace("Async", "", 1)) if node.id in OF_THE_TWIN else node


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _imports(client: type, names: set[str]) -> Iterator[str]:
    """Yield an import of each of these names that the client's module has, or a twin returns."""
    module = inspect.getmodule(client)
    assert module is not None
    lines: Mapping[str, str] = {
        **{name: f"from {module.__name__} import {name}" for name in vars(module)},
        **dict(_imported(ast.parse(inspect.getsource(module)))),
        **{line.split()[-1]: line for line in OF_THE_TWIN.values()},
    }
    own = {client.__name__ for client in CLIENTS}
    yield from (lines[name] for name in names & lines.keys() - own)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"from {node.module} import {ast.unparse(alias)}"


if __name__ == "__main__":
    STUB.write_text(render_stub())
