"""Rejoining: a worker joins its group again when its assignment does not follow from what it reads.

To a static member that comes back within its session, the classic protocol returns the assignment
that it had, whatever it subscribes to now: a topic that is new is assigned to nobody, one that was
removed stays with it. Only a member that leaves and joins again makes the group share out again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.numbers import counted
from redrive.tuning import REJOIN_AGAIN_AFTER, STALLED_AFTER

if TYPE_CHECKING:
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.subscription import Subscription
    from redrive.kafka.groups import Member
    from redrive.record import TopicPartition

log: Final = logging.getLogger("redrive.worker")

_UNFAIR: Final = 2
"""So many partitions more than another are not what an assignor leaves one member with."""


class Rejoining:
    """Compares what the group has assigned with what its members subscribe to.

    The group is asked after each join, and later only about partitions that stand still: it costs
    a request to every broker.
    """

    def __init__(
        self,
        name: str | None,
        topics: Subscription,
        assignment: Assignment,
        *,
        members: Callable[[], list[Member] | None],
        rejoin: Callable[[], None],
    ) -> None:
        self.unassigned: Counter[str] = Counter()
        """How many partitions of each of the app's topics nobody is assigned."""
        self._name = name
        """As a static member of the classic protocol. Others need no looking after."""
        self._topics = topics
        self._assignment = assignment
        self._members = members
        self._rejoin = rejoin
        self.confirmed = False
        """Whether the group was seen to have assigned all that it should."""
        self._balanced = False
        """Whether it has joined again for a fairer share: once is enough, whatever comes of it."""
        self._rejoined_at = -REJOIN_AGAIN_AFTER
        self._stood: dict[TopicPartition, tuple[int, float]] = {}

    def look(
        self, ends: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Look once: at all partitions of the app, where they end and how far they are."""
        assignment = self._assignment
        if self._name is None or not assignment.settled:
            return
        if ends.keys() <= assignment.partitions.keys() and not assignment.foreign:
            self.unassigned.clear()
            return
        now = monotonic()
        if self.confirmed and not self._stand_still(ends, positions, now):
            return
        members = self._members()
        if members is None:
            return
        self.unassigned = Counter(place.topic for place in nobodys(ends, members))
        topics = frozenset(self._topics.shared_out)
        why = why_rejoin(self._name, topics, ends, members, balanced=self._balanced)
        self.confirmed = not why
        if why and now - self._rejoined_at >= REJOIN_AGAIN_AFTER:
            log.warning("%s: this worker leaves the group and joins it again", why)
            self._rejoined_at = now
            self._balanced = True
            self._rejoin()

    def _stand_still(
        self,
        ends: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int],
        now: float,
    ) -> bool:
        """Whether a partition of somebody else has records ahead and has not moved for a while."""
        mine = self._assignment.partitions
        known, self._stood = self._stood, {}
        for place, end in ends.items():
            at = positions.get(place, 0)
            if at < end and place not in mine:
                before = known.get(place)
                self._stood[place] = before if before and before[0] == at else (at, now)
        if any(now - since >= STALLED_AFTER for _, since in self._stood.values()):
            self._stood.clear()  # it is asked now, and in a while again
            return True
        return False


def nobodys(places: Collection[TopicPartition], members: Collection[Member]) -> set[TopicPartition]:
    """The partitions that no member is assigned."""
    return set(places).difference(*(member.places for member in members))


def why_rejoin(
    name: str,
    topics: frozenset[str],
    places: Collection[TopicPartition],
    members: Collection[Member],
    *,
    balanced: bool = False,
) -> str:
    """Why a member has to join again; nothing if all is well."""
    mine = next((each.places for each in members if each.name == name), None)
    if mine is None:
        return ""  # not a member yet
    foreign = {place.topic for place in mine} - topics
    if foreign:
        return f"the group assigned {_listed(foreign)}, to which this worker does not subscribe"
    unassigned = nobodys(places, members)
    if unassigned:
        counts = Counter(place.topic for place in unassigned)
        listed = _listed(f"{counted(n, 'partition')} of {t}" for t, n in counts.items())
        return f"no worker is assigned {listed}"
    for each in members if not balanced else ():
        if len(each.places) - len(mine) >= _UNFAIR and any(
            place.topic in topics for place in each.places
        ):
            return (
                f"{each.name} has {counted(len(each.places), 'partition')} and this worker has"
                f" {len(mine)}, though it could read some of them"
            )
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
