"""Plants bugs one at a time and sees that the tests catch each one.

A mutant is an entry of tools/mutants.toml:

    [[mutant]]
    name = "commits-highest"
    file = "src/redrive/processing/progress/acks.py"
    find = "the exact text, which occurs once in the file"
    replace = "the bug"
    promise = "what redrive promises and this breaks"
    tests = ["tests/unit/processing/progress/test_acks.py"]   # default: tests/unit

Each mutant gets its own copy of `src`, put before the installed package by PYTHONPATH, so the
working tree is never touched. The tests must be green without a mutant. A mutant whose text is gone
is stale; one that cannot even be imported is broken: both fail the run, as one that survives does.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

_PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
_FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_NOT_COLLECTED = re.compile(r"^_+ ERROR collecting ", re.MULTILINE)
_OWN_TIMEOUT = re.compile(r"^\++ Timeout \++$", re.MULTILINE)
_SECONDS_PER_RUN = 600
_TESTS_FAILED = 1


class MutantsError(Exception):
    """The run cannot tell anything; the message says why."""


class Verdict(StrEnum):
    """What became of a mutant; only the first is good."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    STALE = "stale"
    BROKEN = "broken"


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    name: str
    file: str
    find: str
    replace: str
    promise: str
    tests: tuple[str, ...] = ("tests/unit",)

    def planted(self, source: str) -> str:
        """The source with the bug in it."""
        return source.replace(self.find, self.replace)


@dataclass(frozen=True)
class Result:
    """A mutant's verdict and what shows it."""

    mutant: Mutant
    verdict: Verdict
    evidence: str
    seconds: float = 0.0


@dataclass(frozen=True)
class TestRun:
    """How pytest ended."""

    code: int
    output: str


@dataclass(frozen=True)
class Repository:
    """The tree whose tests are tried."""

    root: Path
    package: str

    @contextmanager
    def copy_of_source(self) -> Iterator[Path]:
        """A copy of `src` that vanishes afterwards."""
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            copy = Path(folder)
            shutil.copytree(
                self.root / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__")
            )
            yield copy

    def run_tests(self, copy: Path, tests: Sequence[str]) -> TestRun:
        """Run the tests against the copy, having made sure that it is the copy they import."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(copy / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Failures found by hypothesis here are no failures of the working tree.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / "hypothesis"),
        }
        self._check_import(copy, environment)
        try:
            ended = subprocess.run(
                [*_PYTEST, *tests],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_SECONDS_PER_RUN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return TestRun(_TESTS_FAILED, "++++ Timeout ++++")
        return TestRun(ended.returncode, ended.stdout)

    def _check_import(self, copy: Path, environment: dict[str, str]) -> None:
        # Found, not imported: a mutant may break the import itself, and that is for pytest to show.
        find = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"
        found = subprocess.run(
            [sys.executable, "-c", find, self.package],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if not Path(found).resolve().is_relative_to(copy.resolve()):
            raise MutantsError(f"the tests would import {found} instead of the copy in {copy}")


def load(file: Path) -> list[Mutant]:
    """The mutants of a TOML file."""
    entries: list[dict[str, Any]] = tomllib.loads(file.read_text("utf-8")).get("mutant", [])
    if not entries:
        raise MutantsError(f"{file} names no mutant, so there is nothing to catch")
    mutants = []
    for entry in entries:
        try:
            mutants.append(
                Mutant(**entry | ({"tests": tuple(entry["tests"])} if "tests" in entry else {}))
            )
        except TypeError as error:
            raise MutantsError(f"{file}: {entry.get('name', entry)}: {error}") from error
    names = [mutant.name for mutant in mutants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MutantsError(f"{file}: used more than once: {', '.join(twice)}")
    return mutants


def unplantable(repository: Repository, mutant: Mutant) -> Result | None:
    """Why this mutant cannot be tried, if it cannot."""
    path = repository.root / mutant.file
    if not path.is_relative_to(repository.root / "src") or not path.is_file():
        return Result(mutant, Verdict.STALE, f"there is no {mutant.file} below src")
    source = path.read_text("utf-8")
    if (count := source.count(mutant.find)) != 1:
        return Result(mutant, Verdict.STALE, f"its text occurs {count} times, not once")
    if mutant.find == mutant.replace:
        return Result(mutant, Verdict.BROKEN, "it changes nothing")
    if path.suffix == ".py":
        try:
            ast.parse(mutant.planted(source))
        except SyntaxError as error:
            return Result(mutant, Verdict.BROKEN, f"not Python: {error}")
    return None


def try_mutant(repository: Repository, mutant: Mutant) -> Result:
    """Plant the bug in a copy and run the tests that should notice."""
    started = time.monotonic()
    with repository.copy_of_source() as copy:
        target = copy / mutant.file
        target.write_text(mutant.planted(target.read_text("utf-8")), "utf-8")
        verdict, evidence = _judge(repository.run_tests(copy, mutant.tests))
    return Result(mutant, verdict, evidence, time.monotonic() - started)


def _judge(run: TestRun) -> tuple[Verdict, str]:
    if run.code == 0:
        return Verdict.SURVIVED, "nobody"
    if _OWN_TIMEOUT.search(run.output):
        return Verdict.CAUGHT, "a test that did not end in time"
    failure = _FIRST_FAILURE.search(run.output)
    if run.code != _TESTS_FAILED or failure is None or _NOT_COLLECTED.search(run.output):
        return Verdict.BROKEN, "the tests did not run:\n" + _tail(run.output)
    return Verdict.CAUGHT, failure[1]


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


def check_green(repository: Repository, mutants: Sequence[Mutant]) -> None:
    """The tests must pass without a mutant, or their failing would mean nothing."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with repository.copy_of_source() as copy:
        run = repository.run_tests(copy, tests)
    if run.code != 0:
        raise MutantsError(f"the tests are not green without a mutant:\n{_tail(run.output)}")


def table(results: Sequence[Result]) -> Table:
    """What the run found, for people."""
    view = Table("mutant", "promise", Column("caught by", overflow="fold"), "seconds")
    for result in results:
        good = result.verdict is Verdict.CAUGHT
        evidence = result.evidence if good else f"{result.verdict.upper()}: {result.evidence}"
        view.add_row(
            result.mutant.name,
            result.mutant.promise,
            evidence,
            f"{result.seconds:.1f}",
            style=None if good else "bold red",
        )
    return view


def run(repository: Repository, mutants: Sequence[Mutant], jobs: int) -> list[Result]:
    """Every mutant's result, in the file's order."""
    refused = {mutant.name: unplantable(repository, mutant) for mutant in mutants}
    to_try = [mutant for mutant in mutants if refused[mutant.name] is None]
    if to_try:
        check_green(repository, to_try)
    done = itertools.count(1)

    def try_one(mutant: Mutant) -> Result:
        result = try_mutant(repository, mutant)
        # A whole run takes more than an hour: whoever waits sees it move.
        progress = f"{next(done)}/{len(to_try)}"
        print(f"{progress} {mutant.name}: {result.verdict}", flush=True)
        return result

    with ThreadPoolExecutor(jobs) as pool:
        tried = {mutant.name: pool.submit(try_one, mutant) for mutant in to_try}
        return [refused[mutant.name] or tried[mutant.name].result() for mutant in mutants]


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Plant bugs and see that the tests catch them.")
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only this one; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants and end")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="so many at once")
    parser.add_argument("--root", type=Path, default=here.parent, help="the repository")
    parser.add_argument("--package", default="redrive", help="the package below src")
    parser.add_argument("--config", type=Path, default=here / "mutants.toml", help="the mutants")
    return parser.parse_args(given)


def choose(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Those with the given names, or all."""
    if unknown := set(names) - {mutant.name for mutant in mutants}:
        raise MutantsError(f"no such mutant: {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not names or mutant.name in names]


def main(given: Sequence[str] | None = None) -> int:
    """0 if every mutant was caught."""
    arguments = _arguments(given)
    repository = Repository(arguments.root.resolve(), arguments.package)
    # Wide enough for test names where the output goes to a file.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    try:
        mutants = choose(load(arguments.config), arguments.only)
        if arguments.list:
            for mutant in mutants:
                console.print(f"{mutant.name}: {mutant.promise} ({mutant.file})")
            return 0
        results = run(repository, mutants, arguments.jobs)
    except MutantsError as error:
        console.print(f"mutants: {error}")
        return 1
    console.print(table(results))
    caught = sum(result.verdict is Verdict.CAUGHT for result in results)
    console.print(f"{caught} of {len(results)} planted bugs caught")
    return int(caught != len(results))


if __name__ == "__main__":
    sys.exit(main())
