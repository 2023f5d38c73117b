"""Statuses: what the planners of a run saw last, read from their files; what is news is logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from redrive.engines.spark.spec import Spec
from redrive.engines.words import LaneName

log: Final = logging.getLogger("redrive.spark")


def of_lane(status: Mapping[str, Any], lane: LaneName, sources: Collection[str]) -> dict[str, Any]:
    """In strict order one lane plans all: its status, as each of the two would tell it."""
    ahead = {
        kind: {topic: n for topic, n in found.items() if (topic in sources) == (lane == "main")}
        for kind, found in status.get("ahead", {}).items()
    }
    return {**(status if lane == "main" else {}), "ahead": ahead}


class Statuses:
    """What the planners saw last; also after their files are gone."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._last: dict[LaneName, dict[str, Any]] = {}
        self._heard: dict[LaneName, float] = {}
        self._trouble: dict[LaneName, str] = {}
        self._refusal: dict[LaneName, str] = {}
        self._told: set[str] = set()

    def read(self, lane: LaneName) -> dict[str, Any]:
        """What the planner of a lane saw last; empty before it has planned."""
        try:
            self._last[lane] = json.loads(self._spec.status_file(lane).read_text())
        except FileNotFoundError:
            pass
        return self._last.get(lane, {})

    def heard(self, lane: LaneName) -> float | None:
        """When a planner last wrote what it saw, in seconds since 1970; None: it has not yet."""
        try:
            self._heard[lane] = self._spec.status_file(lane).stat().st_mtime
        except FileNotFoundError:
            pass
        return self._heard.get(lane)

    def tell_news(self, lane: LaneName) -> None:
        """Log troubles that came or went, and records that are gone."""
        status = self.read(lane)
        self._tell_trouble(lane, status)
        self._tell_refusal(lane, status)
        for loss in status.get("lost", ()):
            if loss not in self._told:
                self._told.add(loss)
                log.warning(
                    '%s lane: DATA LOSS: %s; continuing (on_data_loss="continue")',
                    lane,
                    loss,
                )

        for place in status.get("put_back", ()):
            if place not in self._told:
                self._told.add(place)
                log.warning(
                    "%s lane: the broker had lost the committed offset %s: restored", lane, place
                )

    def _tell_refusal(self, lane: LaneName, status: Mapping[str, Any]) -> None:
        refusal, before = status.get("refusal", ""), self._refusal.get(lane, "")
        if refusal and refusal != before:
            log.error("%s lane: %s; the records that need it stay where they are", lane, refusal)
        elif before and not refusal:
            log.warning("%s lane: writes are accepted again", lane)
        self._refusal[lane] = refusal

    def _tell_trouble(self, lane: LaneName, status: Mapping[str, Any]) -> None:
        trouble, before = status.get("trouble", ""), self._trouble.get(lane, "")
        if trouble and not before:
            log.warning("%s lane waits: %s", lane, trouble)
        elif before and not trouble:
            log.warning("%s lane continues", lane)
        self._trouble[lane] = trouble
