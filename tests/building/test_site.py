"""The documentation site as `make docs` builds it: its API pages, its links, and no other host."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import kgroup
from tests.stage.processes import ROOT

DEADLINE_S = 300.0

PUBLIC_MODULES = [
    "kgroup",
    *(f"kgroup.{name}" for name in sorted(kgroup._MODULES)),
    "kgroup.testing",
    "kgroup.testing.simulation",
]


class Page(HTMLParser):
    """Reads one page: its anchors, the links that a reader may follow, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if "src" in values:
            self.loads.append(values["src"])
        if "href" in values:
            (self.links if tag == "a" else self.loads).append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning fails it."""
    directory = tmp_path_factory.mktemp("site")
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert finished.returncode == 0, finished.stderr
    return directory


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_page_of_a_public_module_has_each_name(
    site: Path, pages: dict[Path, Page], name: str
) -> None:
    module = import_module(name)
    folder = site / "docs/api"
    page = pages[folder / f"{name.removeprefix('kgroup.')}.html"]
    names = set(module.__all__)

    # The front's own modules have pages of their own; what it has too is on its page alone.
    if module is kgroup:
        names -= kgroup._MODULES
    else:
        front = {name for name in names if getattr(kgroup, name, None) is getattr(module, name)}
        names -= front
        assert {f"kgroup.{name}" for name in front} <= pages[folder / "kgroup.html"].anchors
    assert {f"{name}.{public}" for public in names} <= page.anchors


def test_search_finds_a_method_and_a_setting(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    places = {entry["location"]: entry["text"] for entry in index["docs"]}
    assert "docs/api/kgroup.html#kgroup.Producer.send" in places
    assert any("min.insync.replicas" in text for text in places.values())


def test_every_link_leads_to_a_page_and_an_anchor_of_it(
    site: Path, pages: dict[Path, Page]
) -> None:
    assert len(pages) > 20
    assert list(broken_links(site, pages)) == []


def broken_links(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue

            # The page for addresses that do not exist is served below any of them.
            base = site if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchors = pages[target].anchors if target in pages else set()
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                yield f"{path.relative_to(site)}: {link}"


def test_pages_load_nothing_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loads = [load for page in pages.values() for load in page.loads]
    for sheet in site.rglob("*.css"):
        loads += re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')]+)""", sheet.read_text())

    assert len(loads) > len(pages)
    assert [load for load in loads if urlsplit(load).netloc] == []
