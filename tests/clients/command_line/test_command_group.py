"""The ends of commands: errors in one line, exit codes."""

import asyncio
import gc
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from broker.kbroker.command import main as kbroker
from clients.command_line.command_group import CommandGroup, import_for_good
from clients.kgroup.command import main as kgroup
from protocol.errors import ApiError, ErrorCode
from protocol.settings import SettingError


def run(command: click.Command, *args: str, **env: str) -> Result:
    return CliRunner().invoke(command, args, env=env)


def group_raising(error: BaseException) -> CommandGroup:
    """Return a command group, like the real two, with a sub-command that raises."""

    class Raising(CommandGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            @click.command()
            def fail() -> None:
                raise error

            return fail

    return Raising(
        rows={"fail": ("none", "Fails.")},
        expected=lambda: (ApiError, SettingError),
        misuse=lambda: (SettingError,),
    )


@pytest.mark.fault("users-29")
@pytest.mark.fault("strangers-181")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("kgroup descrbe words", "describe"),
        ("kgroup reset-offsets words", "reset"),
        ("kbroker topcs", "topics"),
        ("kbroker topics lst", "list"),
        ("kbroker log verfy", "verify"),
    ],
)
def test_the_sub_command_that_was_meant_is_named(words: str, hint: str) -> None:
    program, *arguments = words.split()
    result = CliRunner().invoke({"kgroup": kgroup, "kbroker": kbroker}[program], arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(f"Did you mean {hint!r}?")


def test_an_expected_error_is_one_line_and_exit_code_one() -> None:
    result = run(group_raising(ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "flights")), "fail")
    assert (result.exit_code, result.stderr) == (1, "error: TOPIC_ALREADY_EXISTS: flights\n")


def test_wrong_usage_that_shows_late_is_one_line_and_exit_code_two() -> None:
    result = run(group_raising(SettingError("acks", "must be one of 0, 1")), "fail")
    assert (result.exit_code, result.stderr) == (2, "error: acks: must be one of 0, 1\n")


def test_expected_errors_of_a_task_group_are_one_line_too() -> None:
    error = ExceptionGroup("tasks", [ApiError(ErrorCode.REQUEST_TIMED_OUT, "broker 1")])
    assert run(group_raising(error), "fail").stderr == "error: REQUEST_TIMED_OUT: broker 1\n"


def test_a_missing_file_is_named() -> None:
    error = FileNotFoundError(2, "No such file or directory", "x.properties")
    stderr = run(group_raising(error), "fail").stderr
    assert stderr == "error: x.properties: No such file or directory\n"


def test_a_bug_keeps_its_traceback() -> None:
    result = run(group_raising(AssertionError("impossible")), "fail")
    assert isinstance(result.exception, AssertionError)


@pytest.mark.fault("strangers-179")
def test_a_command_that_fails_as_a_whole_has_json_too() -> None:
    done = run(kgroup, "import", "/nowhere/offsets.json", "-o", "json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["kind"], document["items"]) == (1, "import", [])
    assert document["errors"] == [
        {
            "what": "import",
            "error": "FileNotFoundError",
            "message": done.stderr.removeprefix("error: ").strip(),
        }
    ]


@pytest.mark.fault("strangers-171")
@pytest.mark.parametrize(
    "words", [["topics", "create", "a\udcff"], ["topics", "list", "--topic", "a\udcff"]]
)
def test_a_name_without_an_utf8_form_is_wrong_usage(words: list[str]) -> None:
    done = run(kbroker, *words)
    assert done.exit_code == 2
    assert "'a\\udcff' has no UTF-8 form, in which it is sent" in done.output


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_interrupt_ends_without_a_word(interrupt: BaseException) -> None:
    result = run(group_raising(interrupt), "fail")
    assert (result.exit_code, result.output) == (130, "")


def test_garbage_is_looked_for_again_after_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sound_command.py").write_text("import gc\nseen = gc.isenabled()\n")
    (tmp_path / "broken_command.py").write_text("raise KeyError('broken')\n")

    assert import_for_good("sound_command").seen is False
    assert import_for_good("sound_command") is sys.modules.pop("sound_command")
    assert gc.isenabled()

    with pytest.raises(KeyError, match="broken"):
        import_for_good("broken_command")
    assert gc.isenabled()
