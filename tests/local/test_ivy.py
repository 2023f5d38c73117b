"""What Ivy's output becomes."""

from __future__ import annotations

import io

import pytest

from redrive.errors import LocalError
from redrive.local import ivy


def test_progress_counts_and_the_last_problem_is_kept():
    out = io.StringIO()
    lines = [
        "\tfound org.apache.kafka#kafka_2.13;4.3.1 in public\n",
        "\t[SUCCESSFUL ] org.apache.kafka#kafka_2.13;4.3.1!kafka_2.13.jar (89ms)\n",
        "\t[FAILED     ] a#b;1!b.jar:  (0ms)\n",
        "something else\n",
    ]
    assert ivy.follow(lines, ivy.Progress("kafka", out)) == "[FAILED     ] a#b;1!b.jar:  (0ms)"
    assert out.getvalue().splitlines()[-1] == "downloading the kafka jars: 1 found, 1 downloaded"


def test_without_pyspark_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(ivy, "find_spec", lambda name: None)
    with pytest.raises(LocalError, match=r"pip install 'redrive\[local\]'"):
        ivy.class_path()


def test_a_run_that_fails_is_worth_another(tmp_path):
    with pytest.raises(ivy.RetrieveError, match="Ivy ended with code 3"):
        ivy.run_ivy(["sh", "-c", "exit 3"], "kafka", tmp_path)


def test_a_run_that_brings_nothing_has_failed(tmp_path):
    with pytest.raises(ivy.RetrieveError):
        ivy.run_ivy(["true"], "kafka", tmp_path)
