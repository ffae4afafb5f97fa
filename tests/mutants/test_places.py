"""Code is found by its syntax tree, wherever it has moved, and nothing else is changed."""

from pathlib import Path

import pytest

from tests.mutants.places import Change, NoSuchPlace, plan_change

DOORS = """\
class Door:
    def open(self, key):
        # who has no key stays outside
        if (
            key is None  # a comment
            or key.is_worn
        ):
            return "shut"
        self.log("é", key); self.count += 1
        return "open"

    def close(self):
        return "shut"


def knock(door):
    try:
        return door.open(None)
    except ValueError:
        return f"{door.open(None)}"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "broker").mkdir()
    (tmp_path / "zk").mkdir()
    (tmp_path / "broker/doors.py").write_text(DOORS)
    (tmp_path / "zk/windows.py").write_text("def look(window):\n    return window.is_clean\n")
    return tmp_path


def changed_lines(change: Change) -> list[str]:
    """What is new, line by line and without what stands around it."""
    before = change.before.splitlines()
    return [line.strip() for line in change.after.splitlines() if line not in before]


# --- what is found ----------------------------------------------------------------------------


def test_an_expression_is_found_whatever_its_line_breaks_and_comments(root: Path) -> None:
    change = plan_change(root, "broker.doors:Door.open", "key is None or key.is_worn", "False")
    assert change.after == DOORS.replace(
        "key is None  # a comment\n            or key.is_worn", "(False)"
    )


def test_a_statement_is_found_in_its_function_though_it_stands_in_another_too(root: Path) -> None:
    change = plan_change(root, "broker.doors:Door.close", "return 'shut'", "return 'ajar'")
    assert change.after == DOORS.replace(
        'close(self):\n        return "shut"', "close(self):\n        return 'ajar'"
    )


def test_statements_that_follow_each_other_are_one_piece_of_code(root: Path) -> None:
    code = "self.count += 1\nreturn 'open'"
    change = plan_change(root, "broker.doors:Door.open", code, "return 'wide open'")
    assert changed_lines(change) == ["""self.log("é", key); return 'wide open'"""]


def test_the_whole_of_a_class_or_of_a_module_is_a_place_too(root: Path) -> None:
    code, instead = "self.count += 1", "self.count += 2"
    in_class = plan_change(root, "broker.doors:Door", code, instead)
    in_module = plan_change(root, "broker.doors:", code, instead)
    assert in_class == in_module
    assert changed_lines(in_class) == ['self.log("é", key); self.count += 2']


def test_code_within_an_f_string_does_not_count(root: Path) -> None:
    change = plan_change(root, "broker.doors:knock", "door.open(None)", "None")
    assert changed_lines(change) == ["return (None)"]


# --- what has moved ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("broker.doors:Gate.unlock", id="the function has been renamed"),
        pytest.param("broker.doors:knock", id="the code has gone to another function"),
        pytest.param("broker.network.gates:Door.open", id="the module has been moved"),
        pytest.param("zk.windows:look", id="the code has gone to another module"),
    ],
)
def test_code_that_has_moved_is_found_where_it_is_now(root: Path, place: str) -> None:
    code, instead = "key.is_worn", "False"
    there = plan_change(root, "broker.doors:Door.open", code, instead)
    assert plan_change(root, place, code, instead) == there


def test_code_that_stands_twice_in_all_that_is_left_has_no_place(root: Path) -> None:
    with pytest.raises(NoSuchPlace) as refused:
        plan_change(root, "broker.doors:Door.shut", "return 'shut'", "return 'ajar'")
    assert str(refused.value) == (
        "\"return 'shut'\" stands 0 times in broker.doors:Door.shut, 2 times in broker.doors, "
        "2 times in all packages"
    )


def test_code_that_stands_nowhere_has_no_place(root: Path) -> None:
    with pytest.raises(NoSuchPlace, match=r"^'key is False' stands 0 times in all packages$"):
        plan_change(root, "broker.gates:Gate.open", "key is False", "True")


# --- what is put in its place -----------------------------------------------------------------


def test_a_statement_that_is_taken_away_leaves_pass(root: Path) -> None:
    change = plan_change(root, "broker.doors:Door.open", "self.log('é', key)", "")
    assert changed_lines(change) == ["pass; self.count += 1"]


def test_a_call_gives_way_to_a_statement_only_where_it_is_one(root: Path) -> None:
    change = plan_change(root, "broker.doors:Door.open", "self.log('é', key)", "raise OSError")
    assert changed_lines(change) == ["raise OSError; self.count += 1"]
    with pytest.raises(NoSuchPlace):
        plan_change(root, "broker.doors:knock", "door.open(None)", "raise OSError")


def test_what_comes_in_is_indented_like_what_goes(root: Path) -> None:
    instead = """
        if door:
            return door
        return None
    """
    change = plan_change(root, "broker.doors:knock", "return door.open(None)", instead)
    assert change.after == DOORS.replace(
        "        return door.open(None)",
        "        if door:\n            return door\n        return None",
    )


def test_the_decorators_of_a_function_go_with_it(root: Path) -> None:
    (root / "zk/keys.py").write_text("class Key:\n    @property\n    def is_worn(self): ...\n")
    change = plan_change(root, "zk.keys:", "@property\ndef is_worn(self): ...", "is_worn = True")
    assert change.after == "class Key:\n    is_worn = True\n"
