"""Records that an earlier version of an app left where no policy parks, or no handler reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redrive import App, RetryPolicy
from redrive.engines import left_behind, preflight
from redrive.errors import NotReadyError
from redrive.kafka.errors import NotAllowedError
from redrive.ports import Position
from redrive.processing.progress.notes import TOPIC, with_note
from redrive.record import TopicPartition
from redrive.topics import topic_names

END = 10


class Groups(dict):
    """What each group has committed; every partition has ten records."""

    hidden = ""

    def progress(self, _, group, **__):
        def committed(places):
            if group == self.hidden:
                raise NotAllowedError("not allowed")
            return {place: self[group][place] for place in places if place in self.get(group, ())}

        return SimpleNamespace(committed=committed, close=lambda: None)


@pytest.fixture
def groups(monkeypatch) -> Groups:
    made = Groups()
    log = SimpleNamespace(
        all_bounds=lambda places: dict.fromkeys(places, (0, END)), close=lambda: None
    )
    monkeypatch.setattr(left_behind, "KafkaProgress", made.progress)
    monkeypatch.setattr(left_behind, "KafkaLog", lambda *_, **__: log)
    return made


def ours(offset: int) -> Position:
    return with_note(Position(offset), TOPIC, "id")


def found(app: App) -> dict[str, int]:
    names = ("orders", "returns", "shop.dead", "shop.retry.9s", "shop.retry.5s")
    admin = SimpleNamespace(partitions=lambda: dict.fromkeys(names, 1))
    return left_behind.left_behind(app, None, admin)  # type: ignore[arg-type]  # -- fakes


def shop(name: str = "shop", **options) -> App:
    app = App(name, retry=RetryPolicy("5s"), **options)
    app.handler("orders")(lambda record, ctx: None)
    return app


RETURNS, FORMER = TopicPartition("returns", 0), TopicPartition("shop.retry.9s", 0)


def test_unread_records_of_a_handler_that_is_gone_are_mentioned(groups):
    groups["shop"] = {RETURNS: ours(7), FORMER: ours(END)}
    app = shop()
    assert found(app) == {"shop.retry.9s": 0, "returns": 3}
    said = left_behind.sentence(app, "returns", 3)
    assert said.startswith("no handler reads returns any more, but about 3 records are unread")


def test_what_such_a_handler_has_finished_is_not(groups):
    groups["shop"] = {RETURNS: ours(END), FORMER: ours(END)}
    assert found(shop()) == {"shop.retry.9s": 0}


def test_nor_is_what_somebody_else_in_the_group_has_read(groups):
    groups["shop"] = {RETURNS: Position(7)}
    assert "returns" not in found(shop())


def test_after_a_rename_what_was_done_under_the_old_name_counts(groups):
    groups["shop"] = {FORMER: ours(8), RETURNS: ours(7)}
    app = shop("store", was="shop")
    assert found(app) == {"shop.retry.5s": END, "shop.retry.9s": 2, "returns": 3}
    groups["store"] = {FORMER: ours(9), RETURNS: ours(9)}
    assert found(app) == {"shop.retry.5s": END, "shop.retry.9s": 1, "returns": 1}


def test_without_the_right_to_read_offsets_all_records_of_a_delay_topic_count(groups):
    groups["shop"] = {FORMER: ours(8), RETURNS: ours(7)}
    groups.hidden = "shop"
    assert found(shop()) == {"shop.retry.9s": END}


def check_rooms(committed: int, groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    groups["shop"] = {TopicPartition("shop.retry.5s", 1): ours(committed)}
    admin = SimpleNamespace(
        partitions=lambda: {"orders": 1, "shop.retry.5s": 2, "shop.retry.behind": 1}
    )
    app = shop(ordering="strict")
    topics = SimpleNamespace(visible_settings=lambda _: {})
    is_there = {("topic", name): None for name in topic_names(app)}
    monkeypatch.setattr(preflight, "Admin", lambda *_, **__: admin)
    monkeypatch.setattr(preflight, "KafkaTopics", lambda *_, **__: topics)
    monkeypatch.setattr(preflight, "granted", lambda *_: is_there)
    preflight.check(app, None, "shop:app", engine="worker", new_app=True)  # type: ignore[arg-type]  # -- fakes


def test_in_strict_order_what_waits_in_rooms_of_no_source_partition_is_refused_at_start(
    groups, monkeypatch
):
    with pytest.raises(NotReadyError, match=r"nobody would read 3 records in shop.retry.5s\[1\]"):
        check_rooms(END - 3, groups, monkeypatch)


def test_in_strict_order_rooms_of_no_source_partition_may_be_empty(groups, monkeypatch):
    check_rooms(END, groups, monkeypatch)
