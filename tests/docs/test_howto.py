"""The tutorial and the how-to pages: their Python runs, and what they say of redrive is so.

Python runs as in `test_examples.py`: blocks of a page share a namespace, `# shop.py` begins a
module, and functions called `test_...` are run. What examples need and redrive does not (pydantic,
a schema registry's client) is among the packages for development.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from redrive.app import App
from redrive.cli.commands import app as cli
from redrive.cli.console import READ_TOKEN, TOKEN
from redrive.config import load_settings
from redrive.decisions import REASONS
from redrive.engines.spark.metrics import SparkCollector
from redrive.engines.worker.metrics import WorkerCollector
from redrive.ledger.relay_metrics import RelayCollector
from redrive.worker import Options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HOW_TO = sorted(str(path.relative_to(ROOT)) for path in DOCS.glob("how-to/*.md"))
PAGES = ["docs/tutorial.md", *HOW_TO]
STAND_INS = {"requests": {"post": None}}
"""Modules of others that pages import, with what they use of them; no page calls it for real."""
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")
VERBS = "|".join(typer.main.get_command(cli).commands)
COMMAND = re.compile(rf"(?:^|[/\s\[\"])(redrive\W+(?:{VERBS})\b.*)")
OTHERS = ("reference", "explanation")
"""Folders of the manual whose pages are written elsewhere; looked at once they are there."""


def _helpers():
    path = Path(__file__).with_name("test_examples.py")
    spec = importlib.util.spec_from_file_location("docs_examples", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


examples = _helpers()


def test_all_pages_are_there():
    names = (
        "choose decode own-program outbox secure test size deploy spark-submit alarms dead-letters"
        " parked handle-again console upgrade worker-to-spark from-spring-kafka from-faststream"
        " from-pyspark troubleshoot"
    )
    assert {Path(page).stem for page in HOW_TO} >= set(names.split())


def execute(block, module, page):
    """Run it as a module of the reader's, so that a failure names the line of the page."""
    text = "\n" * (block.line - 1) + block.code
    code = compile(text, str(ROOT / page), "exec", dont_inherit=True)  # no __future__ of ours
    exec(code, vars(module))  # noqa: S102 -- our own pages


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, monkeypatch, request):
    for name, contents in STAND_INS.items():
        stand_in = ModuleType(name)
        vars(stand_in).update(contents)
        monkeypatch.setitem(sys.modules, name, stand_in)
    whole = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", whole)
    for block in examples.blocks(page):
        if block.language != "python":
            continue
        module = examples.MODULE.match(block.code)
        if module is None:
            execute(block, whole, page)
            continue
        made = ModuleType(module[1])
        monkeypatch.setitem(sys.modules, module[1], made)
        execute(block, made, page)
        examples.run_tests(vars(made), request)
    examples.run_tests(vars(whole), request)


def commands(page):
    """Commands of redrive's, in all blocks: also in those of units, images and pods."""
    for block in examples.blocks(page):
        if block.language in ("sh", "console", "ini", "dockerfile", "yaml"):
            text = block.code.replace("\\\n", " ")
            for line in text.splitlines():
                found = COMMAND.search(line)
                if found:
                    yield re.sub(r"[\[\]\",']", " ", found[1].split(" #")[0]).split()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page):
    root = typer.main.get_command(cli)
    inline = re.findall(
        r"`(redrive [^`\n]+)`", examples.FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    )
    for command, *words in [*commands(page), *map(str.split, inline)]:
        assert command == "redrive"
        examples.check_command(root, words, " ".join(words))


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    folder = (ROOT / page).parent
    missing = [link for link in LINK.findall(text) if not (folder / link).exists()]
    unwritten = tuple(f"../{name}/" for name in OTHERS if not (DOCS / name).is_dir())
    assert [link for link in missing if not link.startswith(unwritten or "?")] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_to_headings(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    folder = (ROOT / page).parent
    for link, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#([^)]+)\)", text):
        target = folder / link if link else ROOT / page
        if target.exists():
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{link}#{anchor}"


def slug(heading):
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_settings_on_a_page_are_settings(page, tmp_path):
    for block in examples.blocks(page):
        if block.language == "toml":
            tomllib.loads(block.code)
            (tmp_path / "redrive.toml").write_text(block.code)
            for name in re.findall(r'"([\w/.-]+\.pem)"', block.code):
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----\n")
            secret = {"REDRIVE_SECURITY_PASSWORD": "x"} if "\nuser = " in block.code else {}
            assert load_settings(environ=secret, folder=tmp_path).servers()
    known = {f"REDRIVE_{name}" for name in _variables()} | {TOKEN, READ_TOKEN}
    used = set(re.findall(r"\bREDRIVE_[A-Z_]+\b", (ROOT / page).read_text(encoding="utf-8")))
    assert used <= known


def _variables():
    yield from ("HOME", "JARS", "CONFIG", "BOOTSTRAP", "DATABASE", "LEDGER_SCHEMA")
    for name in ("PROTOCOL", "MECHANISM", "USER", "PASSWORD", "CA", "CERTIFICATE", "KEY"):
        yield f"SECURITY_{name}"


def test_rules_name_figures_and_labels_that_there_are():
    collectors = (SparkCollector, WorkerCollector, RelayCollector)
    declared = {
        figure.name: {"app", *figure.labels} for each in collectors for figure in each.FIGURES
    }
    blocks = [block.code for block in examples.blocks("docs/how-to/alarms.md")]
    rules = " ".join("".join(blocks).split())
    used = re.findall(
        r"(?:by \(([\w, ]+)\) )?\(?(?:(?:increase|rate)\()?(redrive_\w+)(?:{([^}]*)})?", rules
    )
    assert len(used) > 10
    for by, name, chosen in used:
        labels = {*filter(None, by.split(", ")), *re.findall(r"(\w+)=", chosen)} - {"le"}
        assert labels <= declared[name.removesuffix("_bucket")], name


def _texts():
    """All texts of the source, those in braces left out."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_messages_in_the_troubleshooting_page_are_redrives():
    text = (DOCS / "how-to/troubleshoot.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert len(messages) > 12
    said = "\n".join(re.sub(r"%(?:[.\d]*[sdf])", "…", each) for each in _texts())
    assert [each for each in messages if each not in said] == []


def test_reasons_that_are_explained_are_all_there_are():
    text = (DOCS / "how-to/troubleshoot.md").read_text(encoding="utf-8")
    assert set(REASONS) <= set(re.findall(r"`([a-z-]+)`", text))


def test_options_of_an_app_that_pages_name_exist():
    known = set(App.__init__.__annotations__) | set(App.handler.__annotations__)
    known |= {"ctx", "bootstrap", "name"}
    for page in PAGES:
        text = examples.FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for option in re.findall(r"`App\((?:[^`]*?\b)?(\w+)=", text):
            assert option in known, (page, option)


def test_defaults_of_options_are_those_of_the_command():
    command = typer.main.get_command(cli).commands["run"]
    defaults = {name: str(each.default) for each in command.params for name in each.opts}
    rows = re.findall(
        r"^\| `(--[\w-]+)` \| .+ \| (\w+) \|$",
        (DOCS / "how-to/size.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) == 3
    assert [(name, default) for name, default in rows if defaults[name] != default] == []


def test_a_deployment_has_time_to_stop():
    text = (DOCS / "how-to/deploy.md").read_text(encoding="utf-8")
    times = re.findall(
        r"(?:terminationGracePeriodSeconds: |TimeoutStopSec=|--stop-timeout )(\d+)", text
    )
    assert len(times) == 5
    assert min(map(int, times)) > Options().drain_seconds + 10


OWN_NAMES = ("orders", "shipments", "shop")
"""What the tutorial calls its topics and its app."""
VARIES = (
    re.compile(
        r"^\d{4}-|^\s|^retry: |\.\.\.|^ok +(?:python|java|jars|broker|data)"
        r"|^(?:group|letter|died|id|replay-|shop\.dead\[|1[0-9a-f]{15}) *"
    ),
    re.compile(r"in [\d.]+ ?m?s$|p\d+ [\d,]+ ms"),
)
"""Lines that differ from run to run, and parts of them that do."""


def shown(text):
    """The lines of some output that are the same each time."""
    skipped, masked = VARIES
    return [masked.sub("~", line) for line in text.splitlines() if not skipped.search(line)]


def test_the_tutorial_prints_what_it_shows(redrive_stack, redrive_prefix, tmp_path):
    """Its topics, its runs in a worker and what is dead afterwards, with shorter delays.

    Not much shorter: the first run must end before they are over.
    """

    mine = f"{redrive_prefix}."
    stack = {"BOOTSTRAP": redrive_stack.bootstrap, "DATABASE": redrive_stack.database}
    env = {**os.environ, **{f"REDRIVE_{name}": value for name, value in stack.items()}}

    def own(text):
        for name in OWN_NAMES:
            text = text.replace(f'"{name}"', f'"{mine}{name}"')
        return text.replace("10s 20s", "6s 7s")

    def printed(line):
        line = line.replace("shop.dead[", f"{mine}shop.dead[")
        words = shlex.split(re.sub(r"^redrive ", "python -m redrive ", line))
        words[0] = sys.executable if words[0] == "python" else words[0]
        ran = subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        return ran.stdout.replace(mine, "")

    page = examples.blocks("docs/tutorial.md")
    for block in page:
        if block.language == "python":
            (tmp_path / f"{examples.MODULE.match(block.code)[1]}.py").write_text(own(block.code))
    first = next(n for n, block in enumerate(page) if block.code == "redrive topics shop:app\n")
    last = next(n for n, block in enumerate(page) if "--engine spark" in block.code) - 1
    output, compared = "", 0
    for block in page[first:last]:
        if block.language == "sh":
            output = "".join(map(printed, block.code.splitlines()))
        elif block.language == "text":
            expected = shown(block.code.replace("10s", "6s").replace("20s", "7s"))
            assert [line for line in expected if line not in shown(output)] == [], output
            compared += len(expected)
    assert compared > 25
