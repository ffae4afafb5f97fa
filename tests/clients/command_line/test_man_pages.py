"""Every sub-command of both commands has a manual page that a reader of man pages expects."""

import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from clients.command_line import man_pages
from clients.command_line.man_pages import man_page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("man") / "man1"
    written = CliRunner().invoke(man_pages.main, [str(directory)])
    assert written.exit_code == 0, written.output
    return directory


def test_each_sub_command_has_a_page_with_all_sections(pages: Path) -> None:
    names = {path.stem for path in pages.iterdir()}
    assert {"kgroup", "kgroup-describe", "kgroup-perf-produce", "kbroker-topics"} <= names
    for path in pages.iterdir():
        text = path.read_text("utf-8")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"):
            assert f"\n.SH {section}\n" in text, f"{path.name} lacks {section}"
        assert "\b" not in text


def test_page_names_options_and_keeps_the_lines_of_examples(pages: Path) -> None:
    lines = (pages / "kgroup-describe.1").read_text("utf-8").splitlines()
    assert lines[2].startswith("kgroup\\-describe \\- Show each partition")
    assert any(line.startswith("\\fB\\-\\-time\\-lag") for line in lines)
    examples = lines[lines.index(".SH EXAMPLES") :]
    assert examples[1] == ".nf"
    assert examples[2].startswith("kgroup describe ")


def test_text_that_would_be_a_macro_is_text() -> None:
    @click.command(help="Read a file.\n\n.properties is 'its' \\n suffix.")
    def command() -> None:
        pass

    page = man_page(click.Context(command, info_name="reader"))
    assert "\n\\&.properties is 'its' \\en suffix.\n" in page


def test_man_shows_a_page_without_a_complaint(pages: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff here")
    # -k has it read UTF-8, as man does.
    shown = subprocess.run(
        [groff, "-k", "-man", "-Tutf8", "-ww", *map(str, pages.iterdir())],
        capture_output=True,
        text=True,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
