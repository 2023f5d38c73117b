"""Whoever edits an app and loads it again has the new text, whatever was imported before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from redrive import sources
from redrive.config import Settings
from redrive.engines.spark import runtime
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError
from redrive.loading import load_app

APP = """
from redrive import App
from {helper} import TOPIC

app = App("{name}")
app.handler(TOPIC)(lambda record, ctx: None)
"""


class Project:
    """A folder with an app, and a module that it imports."""

    def __init__(self, folder: Path, tag: str) -> None:
        self.folder = folder
        self.module, self.helper = f"shop_{tag}", f"topics_{tag}"
        self.target = f"{self.module}:app"

    def write(self, name: str = "one", topic: str = "old") -> None:
        text = APP.format(helper=self.helper, name=name)
        (self.folder / f"{self.module}.py").write_text(text)
        (self.folder / f"{self.helper}.py").write_text(f'TOPIC = "{topic}"\n')

    def forget(self) -> None:
        """As in a process that has imported nothing of it."""
        sources.forget([self.module, self.helper])

    def spec(self) -> Spec:
        """What the driver tells its workers, now."""
        return Spec(
            target=self.target,
            folder=str(self.folder),
            settings=Settings(),
            sources=sources.remember(self.module),
            run="1-a",
            scratch="",
            slots=2,
        )


@pytest.fixture
def project(tmp_path, monkeypatch, request) -> Project:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Project(tmp_path, f"{abs(hash(request.node.name)):x}")
    made.write()
    yield made
    made.forget()


def test_an_app_that_has_not_changed_is_imported_once(project):
    assert load_app(project.target) is load_app(project.target)


def test_an_app_that_was_edited_is_imported_again(project):
    before = load_app(project.target)
    project.write("two")  # within the same second, and of the same length
    after = load_app(project.target)
    assert (before.name, after.name) == ("one", "two")
    assert load_app(project.target) is after


def test_so_is_what_it_imports_from_beside_it(project):
    load_app(project.target)
    project.write(topic="new")
    assert list(load_app(project.target).handlers) == ["new"]


def test_what_is_installed_is_left_alone(project, monkeypatch):
    beside = project.folder / "site-packages"
    beside.mkdir()
    (beside / "installed.py").write_text("HERE = 1")
    monkeypatch.syspath_prepend(str(beside))
    load_app(project.target)
    import installed  # type: ignore[import-not-found]  # -- it was just written

    assert {*sources.own_modules(project.module)} == {project.module, project.helper}
    project.write("two")
    load_app(project.target)
    assert sys.modules.pop("installed") is installed


def test_a_worker_that_has_run_an_older_text_runs_the_new_one(project):
    """As Spark's Python workers do, which live as long as the session."""
    project.write("two")
    load_app(project.target)  # as the driver does
    spec = project.spec()
    # The worker: it has the modules, and what they were made of, from before.
    project.forget()
    project.write("one")
    assert runtime.load(project.spec()).name == "one"
    project.write("two")
    assert runtime.load(spec, strict=True).name == "two"


def test_a_worker_whose_text_is_another_says_so_at_the_start(project):
    load_app(project.target)
    spec = project.spec()
    sources.forget([project.module])
    project.write("two")  # what was shipped to the worker
    with pytest.raises(ConfigurationError, match=f"{project.module}: not the text that the run"):
        runtime.load(spec, strict=True)


def test_one_that_was_changed_under_a_run_goes_on_and_says_so(project, caplog):
    load_app(project.target)
    spec = project.spec()
    sources.forget([project.module])
    project.write("two")
    assert runtime.load(spec).name == "two"
    assert "the new version runs here" in caplog.text
