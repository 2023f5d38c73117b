"""Records that were given back to be read again."""

from __future__ import annotations

from redrive.processing.order.lanes import Lanes
from redrive.processing.outcomes.report import Report
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import Lane, Work
from redrive.tuning import MOST_GIVEN_BACK


class GivenBack:
    """Whether reading has to go back, and how often records were tried while they are not here.

    Bounded: when it is full the oldest count is forgotten, and that record starts at one again.
    """

    def __init__(self, tracker: AckTracker, lanes: Lanes, most: int = MOST_GIVEN_BACK) -> None:
        self.goes_back = False
        """Whether reading has to go back before anything more is taken in."""
        self._tracker = tracker
        self._lanes = lanes
        self._most = most
        self.counts: dict[int, tuple[int, int]] = {}
        """By offset: the number of the next try, and the steady time of it."""
        self._lanes_returned: set[Lane] = set()
        self._read_to = 0
        """Where reading goes on: all from there on comes by itself."""

    def take(self, report: Report) -> None:
        """Take the records that a report gives back, and those behind them in their lanes."""
        for work, until in report.given_back:
            behind: list[Work] = []
            if work.lane is not None:  # nobody behind it in its lane may overtake it
                behind = self._lanes.take_all(work.lane)
                self._lanes_returned.add(work.lane)
            self._count(work.offset, work.tries + 1, until)
            self._return([work, *behind])

    def not_behind(self, works: list[Work]) -> list[Work]:
        """Those that stay here; who stood behind a record that was given back goes with it."""
        returned = self._lanes_returned
        if not returned:
            return works
        self._return([work for work in works if work.lane in returned])
        stay = [work for work in works if work.lane not in returned]
        returned.clear()
        return stay

    def taken_up(self, offset: int) -> tuple[int, int | None]:
        """The number of the next try of a record that was read, and its steady time."""
        return self.counts.pop(offset, (1, None))

    def take_seek(self) -> int | None:
        """Where reading has to go back to; asked once, then done.

        To the first that is not here again: one before it may still be on its way from the last
        time.
        """
        if not self.goes_back:
            return None
        self.goes_back = False
        first = self._tracker.first_given_back
        if first is not None:
            self._read_to = first
        return first

    def note_read(self, end: int) -> None:
        """Note that all before it was read, since reading went back last."""
        self._read_to = end

    def read_again(self, offset: int) -> None:
        """Have a record read again that was put off; asked as often as one likes.

        Reading goes back only if it is past it: each time, what is on its way is thrown away.
        """
        if self._tracker.ask_for(offset) and offset < self._read_to:
            self.goes_back = True

    def _count(self, offset: int, tries: int, until: int) -> None:
        if len(self.counts) >= self._most:
            del self.counts[next(iter(self.counts))]
        self.counts[offset] = (tries, until)
        self.goes_back = True

    def _return(self, works: list[Work]) -> None:
        self._tracker.give_back([work.offset for work in works])
