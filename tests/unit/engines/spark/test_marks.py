"""Marks: an older run commits nothing once a newer one, or a rewind, has left its mark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redrive.engines.spark import marks
from redrive.ports import Position
from redrive.record import TopicPartition
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

FIRST, PLACE = TopicPartition("orders", 0), TopicPartition("orders", 1)
SPEC: Any = SimpleNamespace(run="1000-mine", settings=None)
REWOUND = marks.labelled(Position(4), topic_id="", run=f"2000-{marks.REWIND}theirs")


@pytest.fixture
def progress():
    broker = MemoryBroker(VirtualClock())
    broker.create("orders", 2)
    return broker.progress("shop")


def test_a_task_whose_progress_was_put_back_while_it_fenced_others_off_does_not_begin(
    progress, monkeypatch
):
    made = []

    def fence(*arguments):
        made.append(arguments)
        progress.commit({PLACE: REWOUND})

    monkeypatch.setattr(marks, "TransactionalProducer", fence)
    with pytest.raises(marks.RivalError, match="put back by `redrive rewind`"):
        marks.producer(SPEC, "shop", PLACE, progress)
    assert made == [(None, "shop", PLACE)]


@pytest.mark.parametrize("marked", [FIRST, PLACE])
def test_a_run_looks_at_its_own_partitions_and_the_first_of_their_topics(progress, marked):
    marks.look("shop", SPEC.run, [PLACE], progress)
    progress.commit({marked: REWOUND})
    with pytest.raises(marks.RivalError):
        marks.look("shop", SPEC.run, [PLACE], progress)
