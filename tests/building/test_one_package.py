"""Names below the front: what is rewritten, what is left, and what stops a build."""

from pathlib import Path

import pytest

from building.one_package import NotUnderstood, copy_below_front, rewrite, rewrite_names
from tests.stage.processes import ROOT


def rewritten(text: str) -> str:
    return rewrite(text, "module.py", ROOT)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("from protocol.errors import ErrorCode", "from kgroup.protocol.errors import ErrorCode"),
        ("from core_log import loop_guard", "from kgroup.core_log import loop_guard"),
        ("def f():\n    from zk.api import x", "def f():\n    from kgroup.zk.api import x"),
        ("from kgroup import errors", "from kgroup import errors"),
        ("import groupsort, protocols", "import groupsort, protocols"),
        ('X = "clients.kgroup.command"', 'X = "kgroup.clients.kgroup.command"'),
        ('X = "clients.kgroup", "clients"', 'X = "kgroup.clients.kgroup", "clients"'),
        ('X = "clients.cluster:Cluster"', 'X = "kgroup.clients.cluster:Cluster"'),
        ('X = f"protocol.messages.{y}"', 'X = f"kgroup.protocol.messages.{y}"'),
        ('X = "broker.cluster.identity."', 'X = "kgroup.broker.cluster.identity."'),
        ('X = "ä", "zk.session"  # zk.session', 'X = "ä", "kgroup.zk.session"  # zk.session'),
        (
            'X = "commit with clients.admin, or not"',
            'X = "commit with kgroup.clients.admin, or not"',
        ),
    ],
)
def test_imports_and_modules_in_strings_go_below_the_front(source: str, wanted: str) -> None:
    assert rewritten(source) == wanted


@pytest.mark.parametrize(
    "source",
    [
        'X = "offsets.topic.num.partitions"',
        'X = "--override broker.id=1"',
        'X = "kgroup import offsets.json"',
        'X = {"groups": groups.count, "offsets": 1}',
        'X = "docs/protocol.md"',
        '"""A docstring may name clients.admin, and core_log."""',
    ],
)
def test_settings_files_words_and_docstrings_stay(source: str) -> None:
    assert rewritten(source) == source


@pytest.mark.parametrize(
    "source",
    [
        "import protocol.errors",
        "import clients",
        "import clients.admin as admin",
        'X = "clients.no_such_module"',
        'X = "clients.cluster:NoSuchClass"',
        'X = "clients" ".admin"\nY = "cli" "ents.admin"',
        'X = f"protocol.{y}"',
        'X = "import attrs, spark_connector"',
        'X = "from zk import api"',
        'import_module("clients")',
        'logging.getLogger("core_log")',
        'X = Path(__file__).parent.parent / "page"',
        "X = Path(__file__).resolve().parents[1]",
    ],
)
def test_what_is_not_understood_stops_the_build_and_is_named(source: str) -> None:
    with pytest.raises(NotUnderstood, match=r"^module\.py:"):
        rewritten(source)


def test_commands_of_the_project_go_below_the_front() -> None:
    text = rewrite_names('kgroup = "clients.kgroup.command:main"', "pyproject.toml", ROOT)
    assert text == 'kgroup = "kgroup.clients.kgroup.command:main"'


def test_module_of_the_front_with_the_name_of_a_package_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "kgroup").mkdir()
    (tmp_path / "kgroup" / "zk.py").touch()
    with pytest.raises(NotUnderstood, match="kgroup/zk"):
        copy_below_front(tmp_path, tmp_path / "copy")


@pytest.mark.parametrize("name", ["clients/admin/admin.py", "kgroup/__init__.py"])
def test_a_module_keeps_its_lines(name: str) -> None:
    source = (ROOT / name).read_text()
    changed = [
        (old, new)
        for old, new in zip(source.splitlines(), rewritten(source).splitlines(), strict=True)
        if old != new
    ]
    assert changed
    assert all(new.replace("kgroup.", "", 1) == old for old, new in changed)
