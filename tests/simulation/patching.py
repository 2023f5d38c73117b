"""Puts simulated threads, time and Kafka into the modules under test, while a run lasts."""

from __future__ import annotations

import concurrent.futures._base
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import redrive.clock
import redrive.delivery.equipping
import redrive.engines.worker.worker
import redrive.kafka.admin
import redrive.kafka.config
import redrive.kafka.groups
import redrive.kafka.log
import redrive.kafka.progress
import redrive.kafka.room
import redrive.kafka.topic_admin
import redrive.kafka.writable
import redrive.processing.execution.collector
from redrive.processing.calls.lots import Lot
from redrive.processing.work import Work
from simulation import ports, primitives

_NOT_OURS = ("redrive.testing", "redrive.console", "redrive.cli", "redrive.local")

REPLACED: list[tuple[object, object]] = [
    *primitives.REPLACED,
    (redrive.kafka.config.make_handle, ports.make_handle),
    (redrive.kafka.admin.Admin, ports.SimAdmin),
    (redrive.kafka.topic_admin.KafkaTopics, ports.SimTopics),
    (redrive.kafka.log.KafkaLog, ports.SimLog),
    (redrive.kafka.progress.KafkaProgress, ports.SimProgress),
    (redrive.kafka.groups.members_of, ports.members_of),
    (redrive.kafka.writable.refusing, ports.refusing),
    (redrive.kafka.room.room_of, ports.room_of),
    (redrive.delivery.equipping._store, ports.store),
    (redrive.clock.WallClock, ports.SimWallClock),
    (redrive.processing.execution.collector.tune_collector, ports.nothing),
]

Patch = tuple[Any, str, Any, Any]


def _patches() -> list[Patch]:
    fakes = {id(real): fake for real, fake in REPLACED}
    found: list[Patch] = [
        (
            concurrent.futures._base,
            "threading",
            concurrent.futures._base.threading,
            primitives.THREADING,
        )
    ]
    # The order of a set is that of its hashes, which by default say where things are in memory.
    found += [(each, "__hash__", each.__hash__, _number) for each in (Lot, Work)]
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] == "redrive" and not name.startswith(_NOT_OURS):
            found += _patches_of(module, fakes)
    return found


def _patches_of(module: ModuleType, fakes: dict[int, object]) -> Iterator[Patch]:
    for name, value in list(vars(module).items()):
        if id(value) in fakes:
            yield module, name, value, fakes[id(value)]
        elif getattr(value, "__module__", None) == module.__name__:
            functions = [value, *vars(value).values()] if isinstance(value, type) else [value]
            for each in functions:
                if isinstance(each, FunctionType) and each.__defaults__:
                    given = tuple(fakes.get(id(one), one) for one in each.__defaults__)
                    if given != each.__defaults__:
                        yield each, "__defaults__", each.__defaults__, given
                if isinstance(each, FunctionType) and each.__kwdefaults__:
                    named = {
                        key: fakes.get(id(one), one) for key, one in each.__kwdefaults__.items()
                    }
                    if named != each.__kwdefaults__:
                        yield each, "__kwdefaults__", each.__kwdefaults__, named


def _number(self: object) -> int:
    return primitives.world().number_of(self)


_ALL: list[Patch] = []


@contextmanager
def patched() -> Iterator[None]:
    """Within, the modules under test are simulated."""
    if not _ALL:
        _ALL.extend(_patches())
    try:
        for where, name, _, fake in _ALL:
            setattr(where, name, fake)
        yield
    finally:
        for where, name, real, _ in _ALL:
            setattr(where, name, real)
