"""Runs many seeds: `make simulate SEEDS=10000`; one again: `make simulate SEED=17`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from simulation.plan import Plan, drawn, strict
from simulation.run import Result, run
from simulation.shrinking import kind_of, shrunk
from simulation.spark import walk
from simulation.strict_spark import walk_strictly


def main() -> int:
    """Run what was asked for; how many seeds failed is the exit code's business."""
    given = _arguments()
    if given.plan is not None:
        return _again(
            Plan.of_json(Path(given.plan).read_text()), shrink=given.shrink, verbose=given.verbose
        )
    if given.seed is not None:
        plan = strict(drawn(given.seed)) if given.strict else drawn(given.seed)
        return _again(plan, shrink=given.shrink, verbose=given.verbose)
    return _many(
        range(given.first, given.first + given.seeds), stop=given.stop, strictly=given.strict
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one, and what it does")
    parser.add_argument("--plan", help="a file with a plan, as --shrink prints it")
    parser.add_argument("--shrink", action="store_true", help="cut a plan down that fails")
    parser.add_argument("--verbose", action="store_true", help="print all that happens")
    parser.add_argument("--strict", action="store_true", help="all in strict order")
    parser.add_argument("--stop", action="store_true", help="end at the first seed that fails")
    return parser.parse_args()


def _again(plan: Plan, *, shrink: bool, verbose: bool) -> int:
    spark = (walk_strictly if plan.is_strict else walk)(plan.seed).violation
    if spark is not None:
        print(f"on Spark: {spark}")
    result = run(plan, print if verbose else None)
    print(plan.to_json())
    print(f"{result.seconds:.1f} virtual s, {result.steps} steps, {result.calls} calls")
    print(result.violation or "all promises are kept")
    if shrink and result.violation is not None:
        print(shrunk(plan).to_json())
    return 1 if result.violation or spark else 0


def _many(seeds: range, *, stop: bool, strictly: bool) -> int:
    began, failed = time.monotonic(), []
    faults: Counter[str] = Counter()
    hours = steps = ran = 0.0
    for seed in seeds:
        result = run(strict(drawn(seed)) if strictly else drawn(seed))
        ran += 1
        hours += result.seconds / 3600
        steps += result.steps
        faults += result.faults
        spark = walk_strictly(seed) if strictly else walk(seed)
        faults += spark.faults
        if spark.violation is not None:
            print(f"seed {seed} on Spark: {spark.violation}", flush=True)
            result = replace(result, violation=result.violation or spark.violation)
        if result.violation is not None:
            failed.append((seed, result))
            print(f"seed {seed}: {result.violation}", flush=True)
            if stop:
                break
    took = time.monotonic() - began
    print(
        f"{ran:.0f} seeds, {hours:.2f} virtual hours, {steps:,.0f} steps in {took:.0f} s;"
        f" {len(failed)} failed"
    )
    for kind, count in sorted(faults.items()):
        print(f"  {count:7,} {kind}")
    _tell(failed)
    return 1 if failed else 0


def _tell(failed: list[tuple[int, Result]]) -> None:
    kinds = Counter(kind_of(result.violation) for _, result in failed)
    for kind, count in kinds.most_common():
        seed = next(seed for seed, result in failed if kind_of(result.violation) == kind)
        print(f"{count} times {kind}; again: make simulate SEED={seed}")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts have the same order in every run.
        again = [sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 -- itself
    raise SystemExit(main())
