"""`redrive dead --engine spark` on a real Kafka: each command with a Spark of its own."""

from __future__ import annotations

import json

import pytest

from redrive.dead import Filter

LETTERS = 40


@pytest.fixture
def buried(shop):
    """Letters of two causes, some of which are discarded."""
    made = shop()
    made.bury([f"{('bad', 'missing')[n % 2]} {n}" for n in range(LETTERS)])
    made.operator().discard(Filter(keys=("k3",)), "not needed")
    return made


def answered(made, verb, *options):
    """What a command says: as its answer, and beside it."""
    process = made.start("dead", verb, made.target, *options)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, (out.decode(), err.decode())
    return out.decode(), err.decode()


@pytest.mark.parametrize("verb", ["groups", pytest.param("stats", marks=pytest.mark.chaos)])
def test_spark_answers_what_this_process_would(buried, verb):
    wanted = ("--state", "open", "--json")
    there, _ = answered(buried, verb, *wanted, "--engine", "spark", "--master", "local[2]")
    here, _ = answered(buried, verb, *wanted)
    assert json.loads(there) == json.loads(here)
    assert json.loads(there)["scan"]["matched"] == LETTERS - LETTERS // 10


@pytest.mark.chaos
def test_an_export_to_parquet_has_the_letters_and_says_how_many(buried, spark_session, tmp_path):
    folder = str(tmp_path / "letters")
    how = ("--engine", "spark", "--format", "parquet", "--to", folder)
    out, said = answered(buried, "export", "--state", "open", *how)
    assert out == ""
    assert f"36 of 40 letters scanned in {buried.app.dead_topic} (all of them)" in said
    values = [bytes(row.value).decode() for row in spark_session.read.parquet(folder).collect()]
    found, _ = buried.letters.some(Filter(states=("open",)), limit=LETTERS)
    assert sorted(values) == sorted(each.letter.record.value.decode() for each in found)
