"""Publishing together: what several threads have to write goes out, and is waited for, at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from redrive.errors import PublishError
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.ports import Publisher


class GroupPublish:
    """Publishes for many threads. While one publishes the others queue, and the next takes all.

    Each for itself would wait for the messages of all the others too: a producer tells how many it
    has under way, not whose they are.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._queue: list[_Share] = []
        self._queue_lock = Lock()
        self._turn = Lock()

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; PublishError where one of these was refused."""
        mine = _Share(writes)
        with self._queue_lock:
            self._queue.append(mine)
        with self._turn:
            if not mine.ended:  # else somebody before has taken it along
                with self._queue_lock:
                    shares, self._queue = self._queue, []
                self._publish(shares)
        if mine.error is not None:
            raise mine.error

    def refusing(self, topics: Collection[str]) -> Mapping[str, PublishError]:
        """Which of these topics take nothing at all now, and why."""
        return self._publisher.refusing(topics)

    def _publish(self, shares: list[_Share]) -> None:
        error: BaseException | None = PublishError("nothing is known of these writes")
        refused: set[int] | None = None
        try:
            self._publisher.publish([write for share in shares for write in share.writes])
        except PublishError as raised:
            error = raised
            refused = {id(write) for write in raised.refused} or None
        except BaseException as raised:
            error = raised
            raise
        else:
            error = None
        finally:
            for share in shares:
                share.end(error, refused)


class _Share:
    """What one thread has to write."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = writes
        self.ended = False
        self.error: BaseException | None = None

    def end(self, error: BaseException | None, refused: set[int] | None) -> None:
        """Note what came of it; `refused` are writes of anybody, None: all of them."""
        self.ended = True
        if refused is None or any(id(write) in refused for write in self.writes):
            self.error = error
