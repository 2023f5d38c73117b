"""The manual is built as `make docs` builds it, and a broken link fails."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = "zensical.toml"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """A copy: what is built must not lie in the working tree, and pages are broken here."""
    folder = tmp_path_factory.mktemp("manual")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / SETTINGS, folder)
    (folder / "src").symlink_to(ROOT / "src")
    return folder


@pytest.fixture(scope="module")
def site(copied) -> Path:
    built = build(copied)
    assert built.returncode == 0, built.stdout + built.stderr
    return copied / ".build" / "site"


def test_every_page_is_built_and_can_be_searched(site):
    index = (site / "search.json").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        made = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / made).is_file(), made
        assert f'"{made.as_posix()}' in index, made


def test_the_api_comes_from_the_docstrings(site):
    page = (site / "reference/api.html").read_text(encoding="utf-8")
    for name in (
        "App",
        "RetryPolicy",
        "Context",
        "Record",
        "spark.start",
        "worker.start",
        "testing.Simulation",
    ):
        assert re.search(rf'id="redrive\.{re.escape(name)}"', page), name


def test_nothing_is_loaded_from_the_network(site):
    loaded = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]+')
    found = {
        each: str(page.relative_to(site))
        for page in site.rglob("*.html")
        for each in loaded.findall(page.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in each
    }
    assert found == {}
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:", sheet.read_text(encoding="utf-8")), sheet


def test_a_broken_link_fails(copied, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(copied, folder, symlinks=True, ignore=shutil.ignore_patterns(".*"))
    page = folder / "docs/reference/handlers.md"
    broken = "[one](retry.md#no-such-heading) [another](no-such-page.md)"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n{broken}\n", encoding="utf-8")
    built = build(folder)
    assert built.returncode != 0
    said = built.stdout + built.stderr
    assert "anchor does not exist" in said
    assert "page does not exist" in said
    assert "2 issues found" in said


def pages_in(entry: object) -> list[str]:
    match entry:
        case str():
            return [entry]
        case dict():
            return [page for value in entry.values() for page in pages_in(value)]
        case list():
            return [page for value in entry for page in pages_in(value)]
    raise TypeError(entry)


def test_every_page_is_in_the_navigation_once():
    # Not checked by the build.
    settings = tomllib.loads((ROOT / SETTINGS).read_text(encoding="utf-8"))
    listed = pages_in(settings["project"]["nav"])
    there = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(there)


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs/decisions"
    text = (folder / "index.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^- \[(.+)\]\(([\w.-]+)\)$", text, re.MULTILINE))
    titles = {
        page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "): page.name
        for page in folder.glob("*.md")
        if page.name != "index.md"
    }
    assert listed == titles
