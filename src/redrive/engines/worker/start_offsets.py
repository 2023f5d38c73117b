"""StartOffsets: where newly assigned partitions begin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from redrive.engines import data_loss, fencing
from redrive.engines.offset_reset import View, begin_at, is_of_another, lost, recreated
from redrive.kafka.errors import BrokerError, MissingTopicError
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.ports import Position
from redrive.processing.progress.notes import TOPIC, with_note
from redrive.record import TopicPartition, partitions_of

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.config import Settings
    from redrive.engines.words import From
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress

log: Final = logging.getLogger("redrive.worker")


class StartOffsets:
    """Where partitions begin: at what was committed, or as the first start says."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        kafka_log: KafkaLog,
        progress: KafkaProgress,
        *,
        start_from: From,
        topic_ids: dict[str, str],
        on_loss: Callable[[Sequence[str]], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._kafka_log = kafka_log
        self._progress = progress
        self._start_from: From = start_from
        self._ids = topic_ids
        """Of each topic, the id that it had when its progress was asked for last, or seen first."""
        self._on_loss = on_loss
        self._begun: dict[tuple[TopicPartition, str], Position] = {}
        """Where partitions of topics began that had no progress, when this process saw them first.
        Until that is committed, "latest" would mean a later time whenever they start again."""

    def note_topics(self, ids: Mapping[str, str]) -> None:
        """Note topics as they are seen first, whoever reads them."""
        for name, topic_id in ids.items():
            self._ids.setdefault(name, topic_id)

    def settle_latest(self) -> None:
        """Commit where "latest" is, for all partitions of topics without any progress, as one.

        Before this worker joins: brokers take it only while nobody is in the group. Otherwise each
        of the workers that start together would commit for its own partitions, and whoever comes
        second would take his, in a topic with progress, for some that were added later.
        """
        if self._start_from != "latest":
            return
        try:
            self._settle_latest()
        except BrokerError as error:
            log.debug("where the first start begins is found with the assignment: %s", error)

    def _settle_latest(self) -> None:
        found = self._kafka_log.topics(self._app.handlers)
        places = partitions_of({name: count for name, (_, count) in found.items()})
        begun = {place.topic for place in self._progress.committed(places)}
        new = [place for place in places if place.topic not in begun]
        if not new:
            return
        bounds = self._kafka_log.all_bounds(new)
        self._progress.commit(
            {
                place: with_note(Position(end), TOPIC, found[place.topic][0])
                for place, (_, end) in bounds.items()
            }
        )

    def fence_off(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, TransactionalProducer]:
        """Fence off whoever had the partitions before."""
        return fencing.fence_off(self._app, places, self._producer)

    def find(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Where each begins; what was committed is asked for only now, after any fencing."""
        if not places:
            return {}
        topics = {place.topic for place in places}
        found = self._kafka_log.topics(topics)
        for name in topics - found.keys():
            raise MissingTopicError(name)
        ids = {name: topic_id for name, (topic_id, _) in found.items()}
        counts = {name: count for name, (_, count) in found.items()}
        everywhere = {*partitions_of(counts), *places}
        committed = self._progress.committed(everywhere)
        again = recreated({place: committed.get(place) for place in places}, ids, self._ids)
        if again:
            self._report_loss([*map(data_loss.recreated_sentence, again)])
        self._ids |= ids
        bounds = self._kafka_log.all_bounds(everywhere)
        views = {
            place: View(*bounds[place], _progress_in(ids[place.topic], committed.get(place)))
            for place in everywhere
        }
        starts = {place: view.committed for place, view in views.items() if view.committed}
        starts |= self._first(views, again)
        mine = {place: views[place] for place in places}
        begun = self._where_begun(mine, starts, ids)
        starts |= begun
        mine |= {place: mine[place]._replace(committed=at) for place, at in begun.items()}
        gone = lost(mine)
        if gone:
            self._report_loss([str(each) for each in gone])
            later = {each.place: Position(each.begin) for each in gone}
            starts |= later
            for place in begun.keys() & later.keys():
                self._begun[place, ids[place.topic]] = later[place]  # it was said, once is enough
        return {place: starts[place] for place in places}

    def _where_begun(
        self,
        views: Mapping[TopicPartition, View],
        starts: Mapping[TopicPartition, Position],
        ids: Mapping[str, str],
    ) -> dict[TopicPartition, Position]:
        """Where those without progress begin: as was found when this process saw them first."""
        begun: dict[TopicPartition, Position] = {}
        for place, view in views.items():
            first_seen = place, ids[place.topic]
            if view.committed is not None:
                self._begun.pop(first_seen, None)
            else:
                begun[place] = self._begun.setdefault(first_seen, starts[place])
        return begun

    def _first(
        self, views: Mapping[TopicPartition, View], again: Collection[str]
    ) -> dict[TopicPartition, Position]:
        waiting = {p: v for p, v in views.items() if self._app.delay_of(p.topic) is not None}
        sources = {place: view for place, view in views.items() if place not in waiting}
        found = begin_at(sources, self._start_from, again) | begin_at(waiting, "earliest")
        return {place: Position(offset) for place, offset in found.items()}

    def _report_loss(self, losses: list[str]) -> None:
        data_loss.report(self._app, losses, self._on_loss)

    def _producer(self, place: TopicPartition) -> TransactionalProducer:
        return TransactionalProducer(self._settings, self._app.name, place, member=True)


def _progress_in(topic_id: str, committed: Position | None) -> Position | None:
    """What was committed, if it was for this topic and not for one that had its name."""
    return None if is_of_another(committed, topic_id) else committed
