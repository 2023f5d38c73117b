"""Group: the coordinator of a consumer group, with cooperative rebalances and static members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from redrive.kafka.groups import Member
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from simulation.cluster import Cluster

METADATA: Final = 10.0
"""Seconds between two looks of consumers at the topics that they subscribe to."""
SESSION: Final = 20.0
"""Seconds after which a member that says nothing is thrown out."""


class GroupMember:
    """One consumer, as the coordinator knows it."""

    def __init__(self, consumer: Any, name: str, instance: str | None, topics: set[str]) -> None:
        self.consumer = consumer
        self.name = name
        self.instance = instance
        self.topics = topics
        self.owned: set[TopicPartition] = set()
        self.target: set[TopicPartition] = set()
        self.seen = consumer.world.now
        self.told = False
        """Whether it was told its first share."""
        self.generation = 0


class Group:
    """Who is in it, and who has which partition."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.members: dict[str, GroupMember] = {}
        self.generation = 0
        self._shared_counts: dict[str, int] = {}
        """How many partitions the topics had when they were shared out."""
        self._looked_at = cluster.world.now
        self._numbers = 0

    def join(self, consumer: Any, instance: str | None, topics: set[str]) -> GroupMember:
        """A consumer joins; a static member that comes back has its share at once."""
        self._numbers += 1
        mine = GroupMember(consumer, f"{instance or 'redrive'}-{self._numbers}", instance, topics)
        before = next(
            (each for each in self.members.values() if instance and each.instance == instance), None
        )
        if before is not None:
            del self.members[before.name]
            before.consumer.fenced = True
            mine.target = before.target
            mine.generation = self.generation
            self.members[mine.name] = mine
            return mine  # nobody shares out again, whatever it subscribes to: so it was seen
        self.members[mine.name] = mine
        self.share_out()
        return mine

    def leave(self, member: GroupMember) -> None:
        """A member goes for good."""
        if self.members.pop(member.name, None) is not None:
            self.share_out()

    def has(self, member: GroupMember) -> bool:
        return self.members.get(member.name) is member

    def owner(self, place: TopicPartition) -> GroupMember | None:
        return next((each for each in self.members.values() if place in each.owned), None)

    def is_stable(self) -> bool:
        return all(each.owned == each.target for each in self.members.values())

    def share_out(self) -> None:
        """Give everybody a fair share; as little as possible moves."""
        self.generation += 1
        broker = self.cluster.broker
        members = list(self.members.values())
        for each in members:
            each.generation = self.generation
        if not members:
            return
        topics = sorted({topic for each in members for topic in each.topics})
        self._shared_counts = self._counts(topics)
        places = [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(broker.partitions(topic))
        ]
        most = -(-len(places) // len(members))
        kept: dict[str, set[TopicPartition]] = {each.name: set() for each in members}
        free = []
        for place in places:
            before = next((each for each in members if place in each.target), None)
            if (
                before is not None
                and len(kept[before.name]) < most
                and place.topic in before.topics
            ):
                kept[before.name].add(place)
            else:
                free.append(place)
        for place in free:
            able = [each for each in members if place.topic in each.topics]
            kept[min(able, key=lambda each: len(kept[each.name])).name].add(place)
        for each in members:
            each.target = kept[each.name]
            each.told = False
        self.cluster.wake_readers()

    def look(self) -> None:
        """Throw out whoever has not been heard of."""
        world = self.cluster.world
        silent = self.cluster.silent_until > world.now or self.cluster.coordinator_until > world.now
        gone: list[GroupMember | None] = []
        for each in self.members.values():
            process = each.consumer.process
            alive = (
                not (process.dead or each.consumer.closed) and process.suspended_until <= world.now
            )
            if alive or silent:
                each.seen = world.now
            elif world.now - each.seen > SESSION:
                gone.append(each)
        for member in filter(None, gone):
            world.faults["session timed out"] += 1
            del self.members[member.name]
        counts = self._counts(self._shared_counts)
        if counts != self._shared_counts and world.now - self._looked_at > METADATA:
            self._looked_at = world.now
            gone += [None] if self.members else []
        if gone:
            self.share_out()

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.cluster.broker.partitions(topic) for topic in topics}

    def described(self) -> list[Member] | None:
        if not self.is_stable():
            return None
        return [
            Member(each.instance or "redrive", frozenset(each.topics), frozenset(each.target))
            for each in self.members.values()
        ]
