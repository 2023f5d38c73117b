"""Publishing together: once for all who wait, and each learns of its own writes only."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from redrive.delivery import group_publish
from redrive.delivery.group_publish import GroupPublish
from redrive.errors import PublishError
from redrive.record import Write

PATIENCE = 60.0


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released whenever somebody wants one of the locks."""
    wanted = threading.Semaphore(0)

    class Noted:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            wanted.release()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    monkeypatch.setattr(group_publish, "Lock", Noted)
    return wanted


def all_wait(wanted: threading.Semaphore, others: int) -> None:
    """Wait until one publishes, and the others have queued and want their turn."""
    for _ in range(3 + 2 * others):  # the queue and the turn; who has that takes the queue again
        assert wanted.acquire(timeout=PATIENCE)


class Slow:
    """A publisher whose first call waits until it may go on."""

    def __init__(self) -> None:
        self.calls: list[list[bytes | None]] = []
        self.began = threading.Event()
        self.may_go_on = threading.Event()

    def publish(self, writes: Sequence[Write]) -> None:
        self.calls.append([write.value for write in writes])
        if len(self.calls) == 1:
            self.began.set()
            assert self.may_go_on.wait(PATIENCE)
        refused = [write for write in writes if write.value == b"bad"]
        if refused:
            error = PublishError("too large")
            error.refused = refused
            raise error

    hand_over = poll = None


def write(value: bytes) -> Write:
    return Write("out", None, value)


def test_what_comes_while_one_publishes_goes_out_at_once_and_only_its_own_fault_is_reported(
    wanted: threading.Semaphore,
) -> None:
    slow = Slow()
    together = GroupPublish(slow)  # type: ignore[arg-type]  # -- only publishes
    told: dict[bytes, str] = {}

    def publish(value: bytes) -> None:
        try:
            together.publish([write(value)])
        except PublishError as error:
            told[value] = str(error)
        else:
            told[value] = "durable"

    first = threading.Thread(target=publish, args=[b"first"])
    first.start()
    assert slow.began.wait(PATIENCE)
    values = [b"one", b"bad", b"two"]
    others = [threading.Thread(target=publish, args=[value]) for value in values]
    for thread in others:
        thread.start()
    all_wait(wanted, len(others))
    slow.may_go_on.set()
    for thread in (first, *others):
        thread.join(PATIENCE)
    assert [sorted(call) for call in slow.calls] == [[b"first"], sorted(values)]  # type: ignore[type-var]  # -- they have values
    assert told == {b"first": "durable", b"one": "durable", b"two": "durable", b"bad": "too large"}


def test_of_writes_that_differ_in_headers_only_each_learns_of_its_own(
    wanted: threading.Semaphore,
) -> None:
    class ByHeader(Slow):
        def publish(self, writes: Sequence[Write]) -> None:
            if len(writes) == 1:
                self.began.set()
                assert self.may_go_on.wait(PATIENCE)
            refused = [write for write in writes if write.headers == (("number", b"1"),)]
            if refused:
                error = PublishError("too large")
                error.refused = refused
                raise error

    slow = ByHeader()
    together = GroupPublish(slow)  # type: ignore[arg-type]  # -- only publishes
    failed: list[int] = []

    def publish(number: int) -> None:
        try:
            together.publish([Write("out", b"k", b"v", (("number", b"%d" % number),))])
        except PublishError:
            failed.append(number)

    first = threading.Thread(target=publish, args=[9])
    first.start()
    assert slow.began.wait(PATIENCE)
    others = [threading.Thread(target=publish, args=[number]) for number in range(3)]
    for thread in others:
        thread.start()
    all_wait(wanted, len(others))
    slow.may_go_on.set()
    for thread in (first, *others):
        thread.join(PATIENCE)
    assert failed == [1]


def test_an_error_without_names_is_everybodys() -> None:
    class Down(Slow):
        def publish(self, writes: Sequence[Write]) -> None:
            raise PublishError("nobody is there")

    with pytest.raises(PublishError, match="nobody is there"):
        GroupPublish(Down()).publish([write(b"one")])  # type: ignore[arg-type]  # -- only publishes
