"""`redrive dead --engine spark`: what is refused before anything is read or started."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from redrive.cli import spark_process
from redrive.cli.commands import app
from redrive.cli.dead_options import On, Whose, refuse_unless
from redrive.cli.dead_spark import asked, shards
from redrive.config import load_settings
from redrive.errors import ConfigurationError

AT = ("--topic", "orders.DLT", "--bootstrap", "127.0.0.1:9")


def said(*arguments):
    answer = CliRunner().invoke(app, ["dead", *arguments])
    assert answer.exit_code != 0
    return str(answer.exception)


def test_options_that_would_have_no_effect_are_refused():
    for option in (("--master", "local[2]"), ("--spark-log-level", "error")):
        assert f"{option[0]}: only with --engine spark; drop it" in said("groups", *AT, *option)
    assert "--to: only with --engine spark" in said("export", *AT, "--to", "there")
    assert "--format: only with --engine spark" in said("export", *AT, "--format", "json")
    on_spark = (*AT, "--engine", "spark")
    assert "--out: only with --engine local" in said("export", *on_spark, "--out", "x")
    assert "--to is missing" in said("export", *on_spark)
    refuse_unless(False, "never", {"--none": None})


def test_what_needs_one_process_is_refused_before_spark_starts():
    wrong = said("replay", *AT, "--engine", "spark", "--yes", "--rate", "5/s")
    assert "--rate needs one process that does it all" in wrong


def test_without_pyspark_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(spark_process, "find_spec", lambda name: None if name == "pyspark" else 1)
    settings = load_settings({"bootstrap": "127.0.0.1:9"}, environ={})
    whose, on = Whose(None, settings, "orders.DLT", "auto"), On("spark", None, "fatal")
    with pytest.raises(ConfigurationError, match=r"not installed: pyspark; pip install"):
        asked(whose, on, lambda letters: letters.groups())
    with pytest.raises(ConfigurationError, match="not installed: pyspark"), shards(whose, on):
        pass
    with shards(whose, On("local", None, "fatal")) as run_shards:
        assert run_shards is None
