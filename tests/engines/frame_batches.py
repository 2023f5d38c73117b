"""Batches of a frame handler, run one by one as a lane would, without its thread."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from redrive.engines.spark.frames.batch import Batches
from redrive.engines.spark.frames.frame_report import RangeReport
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.spec import Spec

HEAD = """
    from pyspark.sql import functions as F
    from redrive.spark import bury, done, park, send, send_all
"""


def module_of(target: str) -> ModuleType:
    """The module of an app that was loaded."""
    return sys.modules[target.partition(":")[0]]


def spec_of(world: Any, target: str, **more: Any) -> Spec:
    """A run of the app, of which the test says what it does."""
    return Spec(
        target=target,
        folder=str(world.folder),
        settings=world.settings,
        scratch=str(world.folder),
        slots=2,
        **{"run": "test", **more},
    )


def run_through(world: Any, batches: Batches, end: int) -> list[RangeReport]:
    """Run the first partition of the source up to an offset; gives the reports of all batches."""
    found: list[RangeReport] = []
    place = world.places("in")[0]
    for _ in range(100):
        committed = world.committed("in").get(place)
        start = 0 if committed is None else committed.offset
        if start >= end:
            return found
        found += batches.run([Range(*place, start, end)])
        if found[-1].fatal or found[-1].trouble:
            return found
    raise AssertionError("the batches do not end")
