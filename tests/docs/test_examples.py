"""What the documentation shows is run, so that it cannot rot.

Python blocks of a page share one namespace and run in their order. A block that begins with
`# shop.py` is a module of that name for the blocks after it. Functions called `test_...` are run
as pytest would run them, fixtures and all. Commands must exist, with the options that are shown.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from redrive.cli.commands import app as cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
ELSEWHERE = ("docs/tutorial.md", "docs/how-to/")
"""Their Python is run by test_howto.py."""
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"# (\w+)\.py\n")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in FENCE.finditer(text)
    ]


def execute(code, namespace, page, line=1):
    """Run it so that a failure names the line of the page."""
    exec(compile("\n" * (line - 1) + code, str(ROOT / page), "exec"), namespace)  # noqa: S102 -- our own pages


def run_tests(namespace, request):
    for name, value in list(namespace.items()):
        if name.startswith("test_") and inspect.isfunction(value):
            wanted = inspect.signature(value).parameters
            value(**{fixture: request.getfixturevalue(fixture) for fixture in wanted})


RUN = [
    page
    for page in PAGES
    if not page.startswith(ELSEWHERE) and any(each.language == "python" for each in blocks(page))
]


@pytest.mark.parametrize("page", RUN)
def test_the_python_runs(page, monkeypatch, request):
    namespace = {"__name__": "page"}
    for block in blocks(page):
        if block.language != "python":
            continue
        module = MODULE.match(block.code)
        if module is None:
            execute(block.code, namespace, page, block.line)
            continue
        made = ModuleType(module[1])
        monkeypatch.setitem(sys.modules, module[1], made)
        execute(block.code, vars(made), page, block.line)
        run_tests(vars(made), request)
    run_tests(namespace, request)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path, request):
    namespace = {"__name__": path.stem}
    execute(path.read_text(encoding="utf-8"), namespace, path.relative_to(ROOT))
    run_tests(namespace, request)


def commands(page):
    lines = [
        line.removeprefix("$ ")
        for block in blocks(page)
        for line in block.code.splitlines()
        if block.language in ("", "sh", "console")
        or (block.language == "text" and line.startswith("$ "))
    ]
    text = (ROOT / page).read_text(encoding="utf-8")
    inline = re.findall(r"`((?:redrive|make) [^`\n]+)`", FENCE.sub("", text))
    return [line.split("#")[0].strip() for line in [*lines, *inline]]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page):
    root = typer.main.get_command(cli)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(page):
        command, *words = [word for word in shlex.split(line, posix=False) if "=" not in word]
        if command == "make":
            assert not words or words[0] in targets, line
        elif command == "redrive":
            check_command(root, words, line)


def check_command(command, words, line):
    while (verbs := getattr(command, "commands", None)) and words:
        assert words[0] in verbs, f"no such command: {line}"
        command, words = verbs[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    given = {word for word in words if word.startswith("--")}
    assert given <= known, f"no such option: {line}"


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    folder = (ROOT / page).parent
    missing = [link for link in LINK.findall(text) if not (folder / link).exists()]
    assert not missing


def test_the_documentation_has_something_to_run():
    assert len(RUN) > 8
    assert EXAMPLES
