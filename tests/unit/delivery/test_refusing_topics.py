"""Topics that refuse what is to be written, for many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Collection

from redrive.delivery.refusing_topics import RefusingTopics
from redrive.errors import PublishError
from redrive.kafka.errors import publish_error
from redrive.record import Write
from redrive.testing import VirtualClock
from redrive.tuning import REFUSED_WAIT


def test_each_refusal_is_of_the_writes_that_it_was_asked_about() -> None:
    """Raised in two threads at once, one error of both would blame the records of the other."""
    topics = RefusingTopics(lambda _: {}, VirtualClock())
    topics.note(publish_error("out", None, "UNKNOWN_TOPIC_OR_PART"))
    lots = [[Write("out", None, b"%d" % number), Write("out", None, b"v")] for number in range(3)]
    errors = [topics.refusal(lot) for lot in lots]
    assert [error and error.refused for error in errors] == lots
    assert [error and error.__notes__ for error in errors] == [["2 of 2 writes were refused"]] * 3


def test_nobody_waits_while_a_broker_is_asked() -> None:
    """An event loop takes note of what was taken: all its handlers would wait for the broker."""
    clock = VirtualClock()
    asked: list[str] = []
    went_on = threading.Event()

    def ask(names: Collection[str]) -> dict[str, PublishError]:
        asked.extend(names)
        threading.Thread(target=meanwhile, daemon=True).start()
        assert went_on.wait(10)
        return {name: publish_error(name, None, "UNKNOWN_TOPIC_OR_PART") for name in names}

    def meanwhile() -> None:
        topics.taken(["another"])
        assert topics.until(["out"]) is not None  # and is not asked again
        went_on.set()

    topics = RefusingTopics(ask, clock)
    topics.note(publish_error("out", None, "UNKNOWN_TOPIC_OR_PART"))
    clock.advance(REFUSED_WAIT)
    until = topics.until(["out"])
    assert until == clock.now() + 2 * REFUSED_WAIT  # as long as ever
    assert asked == ["out"]
