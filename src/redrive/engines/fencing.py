"""Fencing: whoever had a partition before can commit nothing more to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from redrive.record import TopicPartition
from redrive.tuning import FENCED_AT_ONCE

T = TypeVar("T")


def fence_off(
    places: Collection[TopicPartition], fence: Callable[[TopicPartition], T]
) -> dict[TopicPartition, T]:
    """Fence off several partitions, a few side by side: each takes a while."""
    if not places:
        return {}
    with ThreadPoolExecutor(min(len(places), FENCED_AT_ONCE)) as side_by_side:
        return dict(zip(places, side_by_side.map(fence, places), strict=True))
