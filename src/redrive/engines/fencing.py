"""Fencing: whoever had a partition before can commit nothing more to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from redrive.app import App
from redrive.record import TopicPartition
from redrive.tuning import FENCED_AT_ONCE

T = TypeVar("T")


def fence_off(
    app: App, places: Collection[TopicPartition], fence: Callable[[TopicPartition], T]
) -> dict[TopicPartition, T]:
    """Fence off whoever had the partitions before, where the app uses transactions."""
    return side_by_side(places, fence) if app.guarantee.transactional else {}


def side_by_side(
    places: Collection[TopicPartition], fence: Callable[[TopicPartition], T]
) -> dict[TopicPartition, T]:
    """Do it for several partitions, a few at a time: each takes a while."""
    if not places:
        return {}
    with ThreadPoolExecutor(min(len(places), FENCED_AT_ONCE)) as threads:
        return dict(zip(places, threads.map(fence, places), strict=True))
