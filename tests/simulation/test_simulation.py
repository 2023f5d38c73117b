"""Seeds that run in a few seconds; `make simulate` runs as many as you like."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from simulation.plan import Plan, drawn, strict
from simulation.run import run
from simulation.spark import walk
from simulation.strict_spark import walk_strictly

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_all_promises_are_kept(first):
    for seed in range(first, first + 10):
        result = run(drawn(seed))
        assert result.violation is None, f"make simulate SEED={seed}"


@pytest.mark.parametrize("first", range(10, 50, 10))
def test_all_promises_are_kept_in_strict_order(first):
    for seed in range(first, first + 10):
        result = run(strict(drawn(seed)))
        assert result.violation is None, f"make simulate SEED={seed} ARGS=--strict"


def test_all_promises_are_kept_by_planner_and_tasks():
    for seed in range(30):
        assert walk(seed).violation is None, f"make simulate SEED={seed}"


def test_all_promises_are_kept_by_planner_and_tasks_in_strict_order():
    for seed in range(60):
        assert walk_strictly(seed).violation is None, f"make simulate SEED={seed} ARGS=--strict"


@pytest.mark.parametrize(
    "plan", [Plan.of_json(path.read_text()) for path in KEPT], ids=[path.stem for path in KEPT]
)
def test_what_once_failed_is_kept(plan):
    """In several interleavings: which of them failed changes with the code."""
    for seed in (plan.seed, *range(5)):
        assert run(replace(plan, seed=seed)).violation is None, f"seed {seed}"


@pytest.mark.parametrize("seed", [3, 7, 19])
def test_a_seed_does_the_same_again(seed):
    assert run(drawn(seed)).trace == run(drawn(seed)).trace


def test_a_plan_is_the_same_as_text():
    assert Plan.of_json(drawn(5).to_json()) == drawn(5)


def test_tests_that_run_after_it_see_log_lines_again(caplog):
    log = logging.getLogger("redrive.worker")
    run(drawn(3))
    log.warning("seen")
    assert caplog.messages == ["seen"]
