"""The names that an app had."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redrive import App
from redrive.engines import renamed
from redrive.engines.renamed import Names, moved, sentence, unread, unread_before
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.errors import BrokerError, NotAllowedError
from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.processing.progress.done_beyond import METADATA_LIMIT
from redrive.processing.progress.notes import BEGUN, MOVED, ROOM, RUN, TOPIC, noted, with_note
from redrive.record import TopicPartition

ORDERS, RETURNS = TopicPartition("orders", 0), TopicPartition("returns", 0)
PARKED = TopicPartition("invoices.retry.5m", 0)
OURS = with_note(Position(7), TOPIC, "id")
TOPICS = {"orders": 1, "returns": 1, "invoices.dead": 1, "invoices.retry.5m": 1, "bills.dead": 1}


class Groups(dict):
    """Committed offsets, by group; those of some nobody may see."""

    def __init__(self):
        super().__init__()
        self.hidden = set()
        self.asked = set()
        self.refuse = None

    def progress(self, settings, group, **_):
        self.asked.add(group)

        def committed(places):
            if group in self.hidden:
                raise NotAllowedError(group)
            found = self.get(group, {})
            return {place: found[place] for place in places if place in found}

        def commit(positions):
            if self.refuse is not None:
                self.refuse()
            self.setdefault(group, {}).update(positions)

        return SimpleNamespace(committed=committed, commit=commit, close=lambda: None)


@pytest.fixture
def groups(monkeypatch):
    made = Groups()
    monkeypatch.setattr(renamed, "KafkaProgress", made.progress)
    monkeypatch.setattr(renamed, "pause", lambda _: None)
    log = SimpleNamespace(
        topics=lambda names: dict.fromkeys(names, ("id", 1)),
        all_bounds=lambda places: dict.fromkeys(places, (3, 5)),
        close=lambda: None,
    )
    monkeypatch.setattr(renamed, "KafkaLog", lambda *_, **__: log)
    monkeypatch.setattr(renamed, "waiting", lambda group, topics, *_: dict.fromkeys(topics, 2))
    return made


def names(app, topics=TOPICS):
    admin = SimpleNamespace(partitions=lambda: topics)
    return Names(app, settings=None, admin=admin)


def bills(*topics, **options):
    app = App("bills", **options)
    for topic in topics or ("orders",):
        app.handler(topic)(lambda record, ctx: None)
    return app


def test_progress_in_its_topics_alone_makes_another_app_a_likely_old_name(groups):
    assert names(bills()).earlier() is None
    groups["invoices"] = {ORDERS: OURS, PARKED: OURS}
    assert names(bills()).earlier() == "invoices"
    assert names(bills("orders", "returns")).earlier() == "invoices"
    assert 'App("bills", was="invoices")' in sentence(bills(), "invoices")
    groups["invoices"][RETURNS] = OURS
    assert names(bills()).earlier() is None
    assert names(bills("orders", "returns")).earlier() == "invoices"


def test_what_redrive_has_not_committed_says_nothing(groups):
    groups["invoices"] = {ORDERS: Position(7, "of another program")}
    assert names(bills()).earlier() is None


def test_progress_of_its_own_says_that_it_is_not_new(groups):
    groups["invoices"] = groups["bills"] = {ORDERS: OURS}
    assert names(bills()).earlier() is None


@pytest.mark.parametrize("hidden", ["invoices", "bills"])
def test_what_may_not_be_seen_is_no_reason_to_refuse(groups, hidden):
    """The run itself says what it lacks."""
    groups["invoices"] = {ORDERS: OURS}
    groups.hidden.add(hidden)
    assert names(bills()).earlier() is None


def test_progress_and_parked_records_are_taken_over_once(groups):
    of_spark = with_note(with_note(OURS, RUN, "run"), BEGUN, "task")
    groups["invoices"] = {ORDERS: of_spark, PARKED: OURS, RETURNS: OURS}
    waited = []
    app = bills(was="invoices")
    names(app).take_over("invoices", lambda: waited.append(True))
    assert groups["bills"] == {ORDERS: OURS, PARKED: OURS}
    assert waited == [True]
    groups["invoices"][ORDERS] = Position(9)
    names(app).take_over("invoices", lambda: waited.append(True))
    assert groups["bills"][ORDERS] == OURS
    assert waited == [True]


def without_a_handler(groups) -> App:
    """The app under its old name, after one that reads fewer topics has taken over."""
    groups["invoices"] = {ORDERS: OURS, RETURNS: OURS}
    names(bills(was="invoices")).take_over("invoices", lambda: None)
    groups["bills"][ORDERS] = OURS._replace(offset=50)  # it has gone on
    old = App("invoices", was="bills")
    for topic in ("orders", "returns"):
        old.handler(topic)(lambda record, ctx: None)
    return old


def test_also_if_the_new_name_reads_fewer_topics_the_old_one_knows_that_it_was_taken_over(groups):
    assert names(without_a_handler(groups)).later() == "bills"


def test_and_the_way_back_begins_where_the_new_name_was(groups):
    names(without_a_handler(groups)).take_over("bills", lambda: None)
    assert [groups["invoices"][each].offset for each in (ORDERS, RETURNS)] == [50, 7]


def test_a_mark_fits_into_a_commit_whatever_else_is_in_it(groups):
    far = done_beyond.encode_offsets(7, range(9, 200_000, 2), METADATA_LIMIT - ROOM)
    groups["invoices"] = {ORDERS: with_note(Position(7, far), TOPIC, "id")}
    app = App("b" * 200, was="invoices")
    app.handler("orders")(lambda record, ctx: None)
    names(app).take_over("invoices", lambda: None)
    assert len(groups["invoices"][ORDERS].metadata) <= METADATA_LIMIT
    assert far in groups["b" * 200][ORDERS].metadata


def nearly_full(groups, *, on_spark: bool) -> tuple[App, str]:
    """Progress whose metadata has hardly any room, and an app with a long name to take it over."""
    far = done_beyond.encode_offsets(7, range(9, 200_000, 2), METADATA_LIMIT - ROOM)
    groups["invoices"] = {ORDERS: with_note(Position(7, far), TOPIC, "i" * 22)}
    if on_spark:
        groups["invoices"][PARKED] = with_note(OURS, RUN, "run")
    app = App("b" * 200, was="invoices")
    app.handler("orders")(lambda record, ctx: None)
    return app, far


def test_what_is_done_beyond_is_taken_over_whole_also_from_a_run_on_spark(groups):
    app, far = nearly_full(groups, on_spark=True)
    names(app).take_over("invoices", lambda: None)
    assert far in groups[app.name][ORDERS].metadata


def test_a_take_over_that_is_killed_half_way_loses_no_more_of_it_than_has_no_room(groups):
    app, _ = nearly_full(groups, on_spark=False)
    commits = []

    def die():
        commits.append(1)
        if len(commits) == 2:
            raise KeyboardInterrupt

    groups.refuse = die
    with pytest.raises(KeyboardInterrupt):
        names(app).take_over("invoices", lambda: None)
    names(app).take_over("invoices", lambda: None)
    assert len(done_beyond.decode(groups[app.name][ORDERS])) > 1000


@pytest.fixture
def busy(groups, monkeypatch):
    """A run on Spark of the old name that commits whenever somebody waits, so many times."""
    groups["invoices"] = {ORDERS: with_note(OURS, RUN, "run")}
    commits: list[int] = []

    def commit(_: float) -> None:
        if len(commits) < groups.busy:
            at = groups["invoices"][ORDERS]
            commits.append(at.offset)
            after = with_note(with_note(at, MOVED, ""), RUN, "run")
            groups["invoices"][ORDERS] = after._replace(offset=at.offset + 1)

    monkeypatch.setattr(renamed, "pause", commit)
    return groups


def test_a_run_on_spark_that_goes_on_under_the_old_name_is_waited_for(busy):
    busy.busy = 5
    names(bills(was="invoices")).take_over("invoices", lambda: None)
    assert busy["bills"][ORDERS].offset == 7 + 5
    assert noted(busy["invoices"][ORDERS], MOVED) == "bills"


def test_one_that_does_not_end_is_named_and_nothing_is_taken_over(busy):
    busy.busy = 1_000
    with pytest.raises(RedriveError, match=r'"invoices".* is still running on Spark.*stop it'):
        names(bills(was="invoices")).take_over("invoices", lambda: None)
    assert "bills" not in busy


def test_who_was_taken_over_knows_it_and_can_take_it_back(groups):
    groups["invoices"] = {ORDERS: OURS, PARKED: OURS}
    names(bills(was="invoices")).take_over("invoices", lambda: None)
    old = App("invoices", was="bills")
    old.handler("orders")(lambda record, ctx: None)
    assert names(bills()).later() is None
    assert names(old).later() == "bills"
    assert 'App("invoices", was="bills")' in moved(old, "bills")

    groups["bills"][ORDERS] = further = OURS._replace(offset=9)
    names(old).take_over("bills", lambda: None)
    assert groups["invoices"] == {ORDERS: further, PARKED: OURS}
    assert (names(old).later(), names(bills()).later()) == (None, "invoices")


def test_what_waits_under_the_old_name_is_not_forgotten_with_it(groups):
    groups["invoices"] = {ORDERS: OURS}  # which has never read what it has parked
    app = bills(was="invoices")
    names(app).take_over("invoices", lambda: None)
    assert groups["bills"][PARKED].offset == 3
    assert names(app).stranded() == {}
    assert names(bills()).stranded() == {"invoices.retry.5m": 2}
    assert 'App("bills", was="invoices")' in unread(bills(), {"invoices.retry.5m": 2})
    groups.hidden.add("bills")
    assert names(bills()).stranded() == {}


def test_an_app_that_is_renamed_twice_does_not_forget_what_waits_under_the_first_name(groups):
    groups["invoices"] = {ORDERS: OURS}
    names(bills(was="invoices")).take_over("invoices", lambda: None)
    third = App("charges", was="bills")
    third.handler("orders")(lambda record, ctx: None)
    stranded = names(third).stranded_before("bills")
    assert stranded == {"invoices.retry.5m": 2}
    assert 'run App("bills", was="invoices")' in unread_before(third, stranded)
    names(third).take_over("bills", lambda: None)  # as somebody wanted it
    assert names(third).stranded_before("bills") == {}


def test_whoever_is_marked_and_has_gone_on_all_the_same_is_another_app(groups):
    moved_away = with_note(OURS, MOVED, "invoices")
    groups["bills"] = {ORDERS: moved_away, RETURNS: OURS}
    assert names(bills("orders", "returns")).later() is None
    groups.hidden.add("bills")
    assert names(bills()).later() is None


def test_of_two_processes_that_take_over_one_is_quicker(groups):
    def refuse():
        groups["bills"] = {ORDERS: OURS}
        raise BrokerError("the group has members")

    groups["invoices"] = {ORDERS: OURS}
    groups.refuse = refuse
    names(bills(was="invoices")).take_over("invoices", lambda: None)
    groups.pop("bills")
    groups.refuse = lambda: (_ for _ in ()).throw(BrokerError("nobody answers"))
    with pytest.raises(BrokerError, match="nobody answers"):
        names(bills(was="invoices")).take_over("invoices", lambda: None)


def test_what_waits_under_the_old_name_is_its_own():
    app = App("bills", was="invoices")
    assert app.delay_of("invoices.retry.5m") == app.delay_of("bills.retry.5m") == 300_000
    found = app.waiting_topics(["invoices.retry.1s", "bills.retry.1s", "bills", "x.retry.1s"])
    assert found == {"invoices.retry.1s": 1000, "bills.retry.1s": 1000}
    assert App("bills").delay_of("invoices.retry.5m") is None


@pytest.mark.parametrize(
    ("was", "mistake"),
    [("a b", "was is 'a b'"), ("bills", "the app's current name"), (7, "was is 7")],
)
def test_mistakes(was, mistake):
    with pytest.raises(ConfigurationError, match=mistake):
        App("bills", was=was).check()


def test_apps_are_known_by_their_topics(groups):
    topics = ["a.dead", "b.retry.5m", "orders", "c.retry.soon", "x.y.dead"]
    assert names(bills(), dict.fromkeys(topics, 1)).earlier() is None
    assert groups.asked == {"bills", "a", "b", "x.y"}
