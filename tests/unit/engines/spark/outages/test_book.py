"""The book: what the tasks of both lanes have seen, together, and who may call what is away."""

from __future__ import annotations

import pytest

from redrive import Guard
from redrive.breaker import Why
from redrive.engines.spark.outages.book import Book
from redrive.engines.spark.outages.shared_book import SharedBook
from redrive.engines.spark.outages.told import Held, LetOut, Looked, Told
from redrive.record import TopicPartition

NOW = 1_000_000
PLACES = [TopicPartition("in", number) for number in range(3)]
PARKED = TopicPartition("shop.retry.5m", 0)
SEEN = Why("1f00", 20, 20, 0, 300)


@pytest.fixture
def book():
    return Book({"in": Guard()}, concurrency=4)


def breaker(book):
    return book.pages["in"].breaker


def own(book):
    return {place: found for place, found in book.pages["in"].own.items() if found}


def held(place, offset, *, passed=0, key=None):
    return Held((*place, offset), f"{place}{offset}" if key is None else key, "1f00", 100, passed)


def told(*failures, passed=0, lanes=None):
    return Told("in", held=[*failures], passed=passed, lanes=lanes)


def let_out(offset, result, place=PLACES[0]):
    cause = "1f00" if result == "failed" else ""
    return Told("in", let_out=[LetOut((*place, offset), result, f"k{offset}", cause)])


def opened(book):
    book.note("main", [Told("in", why=SEEN)], NOW)
    return NOW + 1000


def probe(book, now, result, offset=0, places=PLACES):
    """Let some out, and hear of one; returns when the next may follow."""
    book.begin("main", now)
    rations = book.ration("main", "in", places, now)
    book.note("main", [let_out(offset, result, next(iter(rations)))], now)
    return max(now, breaker(book).free_at)


# Is there an outage?


def test_few_failures_of_each_task_are_an_outage_together(book):
    book.note("main", [told(*(held(place, n) for n in range(8))) for place in PLACES], NOW)
    assert breaker(book).state == "open"
    assert not own(book)


def test_what_one_task_tells_is_not_enough(book):
    book.note("main", [told(*(held(PLACES[0], n) for n in range(8)))], NOW)
    assert own(book) == {PLACES[0]: {*range(8)}}


def test_enough_keys_that_have_failed_too_seldom_are_called_once_more(book):
    tasks = [told(*(held(place, n) for n in range(4))) for place in PLACES]
    book.note("main", tasks, NOW)
    assert breaker(book).state == "suspect"
    assert not own(book)
    book.note("main", tasks, NOW + 500)
    assert breaker(book).state == "open"


def test_a_failure_is_its_records_own_if_others_pass_elsewhere(book):
    failing = told(*(held(PLACES[0], n) for n in range(12)))
    passing = told(held(PLACES[1], 7), passed=500)
    book.note("main", [failing, passing], NOW)
    assert own(book) == {PLACES[0]: {*range(12)}, PLACES[1]: {7}}


FAILED = [(*PLACES[0], number) for number in range(20)]


@pytest.mark.parametrize(
    ("passing", "state"),
    [([(60, 5)], "closed"), ([(200, 500)], "open"), ([(60, 1)], "open"), ([], "open")],
    ids=["others pass", "they did before", "next to none", "none"],
)
def test_what_one_task_sees_is_an_outage_if_others_do_not_pass_meanwhile(book, passing, state):
    seeing = Told("in", why=SEEN, failed=FAILED)
    book.note("main", [seeing, Told("in", passing=passing)], NOW)
    assert breaker(book).state == state
    assert own(book) == ({PLACES[0]: {*range(20)}} if state == "closed" else {})


def test_a_handler_that_says_so_is_believed_whatever_others_do(book):
    seeing = Told("in", why=Why("1f00", 1, 1, 0, 0), failed=FAILED)
    book.note("main", [seeing, Told("in", passing=[(60, 5)])], NOW)
    assert breaker(book).state == "open"


def test_one_key_is_no_outage_in_whatever_partition(book):
    book.note("main", [told(*(held(place, n, key="k") for n in range(9))) for place in PLACES], NOW)
    assert breaker(book).state != "open"


def test_lanes_that_keep_all_others_back_stand_for_their_keys(book):
    for number in range(20):
        tasks = [told(held(place, 0), lanes=1) for place in PLACES]
        book.note("main", tasks, NOW + 400 * number)
    assert breaker(book).state == "open"


def test_what_was_found_to_be_a_records_own_is_not_during_an_outage(book):
    book.note("main", [told(held(PLACES[0], 4))], NOW)
    assert own(book)
    opened(book)
    assert not own(book)


def test_a_doubt_that_is_over_is_forgotten(book):
    book.note("main", [told(held(PLACES[0], 4))], NOW)
    book.begin("main", NOW + 20_000)
    assert breaker(book).state == "closed"


# Who may begin?


def test_only_one_lane_has_the_probe(book):
    now = opened(book)
    assert book.ration("main", "in", PLACES, now) == {PLACES[0]: 1}
    assert book.ration("retry", "in", [PARKED], now) == {}
    assert book.ration("main", "in", PLACES, now) == {}


def test_none_is_given_before_it_is_time(book):
    now = opened(book)
    assert book.ration("main", "in", PLACES, now - 1) == {}


def test_probes_rotate_over_partitions(book):
    now, asked = opened(book), []
    for _ in range(6):
        book.begin("main", now)
        (place,) = book.ration("main", "in", PLACES, now)
        asked.append(place)
        book.note("main", [let_out(0, "failed", place)], now)
        now = breaker(book).free_at
    assert asked == PLACES * 2


def test_lanes_take_turns_while_records_wait_in_both(book):
    now = opened(book)
    book.look("retry", "in", now, waits=None)
    now = probe(book, now, "failed")
    assert book.ration("main", "in", PLACES, now) == {}
    assert book.ration("retry", "in", [PARKED], now) == {PARKED: 1}


def test_a_lane_that_does_not_ask_holds_up_nobody(book):
    now = opened(book)
    book.look("retry", "in", now, waits=None)
    now = probe(book, now, "failed")
    assert book.ration("main", "in", PLACES, now + 1000) == {PLACES[1]: 1}


def test_a_ration_of_which_nothing_was_heard_is_used_up(book):
    now = opened(book)
    book.ration("main", "in", PLACES, now)
    book.begin("main", now + 5000)
    assert book.ration("retry", "in", [PARKED], now + 5000) == {PARKED: 1}


def test_lanes_share_what_may_begin_in_the_ramp(book):
    now = opened(book)
    for offset in range(3):
        now = probe(book, now, "passed", offset)
    assert breaker(book).state == "ramp"
    probe(book, now, "passed", 9)
    book.begin("main", now)
    book.look("retry", "in", now, waits=None)
    assert book.ration("main", "in", PLACES, now) == {PLACES[1]: 1}
    assert book.ration("retry", "in", [PARKED], now) == {PARKED: 1}


def test_it_is_over_when_as_many_pass_at_once_as_all_tasks_can_call(book):
    now, given = opened(book), []
    for _ in range(100):
        if breaker(book).state == "closed":
            break
        book.begin("main", now)
        rations = book.ration("main", "in", PLACES, now)
        given.append(sum(rations.values()))
        tasks = [
            let_out(1000 * len(given) + number, "passed", place)
            for place, count in rations.items()
            for number in range(count)
        ]
        book.note("main", tasks, now)
        now += 100
    assert given == [1, 1, 1, 1, 2, 4]


def test_it_is_over_when_nothing_waits_in_either_lane(book):
    now = opened(book)
    for offset in range(3):
        now = probe(book, now, "passed", offset)
    book.look("main", "in", now + 2000, waits=0)
    book.look("retry", "in", now + 2000, waits=0)
    assert breaker(book).state == "closed"


@pytest.mark.parametrize(("left", "state"), [(9, "closed"), (10, "ramp"), (None, "ramp")])
def test_it_is_over_when_fewer_wait_than_could_be_an_outage(book, left, state):
    now = opened(book)
    for offset in range(3):
        now = probe(book, now, "passed", offset)
    probe(book, now, "failed", 7)
    book.look("retry", "in", now + 2000, waits=0)
    book.look("main", "in", now + 2000, waits=left)
    assert breaker(book).state == state


def test_two_failures_in_a_row_open_it_again(book):
    now = opened(book)
    for offset in range(3):
        now = probe(book, now, "passed", offset)
    for offset in (7, 8):
        now = probe(book, now, "failed", offset)
    assert breaker(book).state == "open"


def test_a_record_that_fails_alone_while_others_pass_is_its_policys(book):
    now = opened(book)
    for offset in range(3):
        now = probe(book, now, "passed", offset, places=PLACES[1:])
    now = probe(book, now, "failed", 7, places=PLACES[:1])
    assert not own(book)
    for offset in range(10, 14):
        now = probe(book, now, "passed", offset, places=PLACES[1:])
    now = probe(book, now, "failed", 7, places=PLACES[:1])
    assert own(book) == {PLACES[0]: {7}}


def test_who_has_failed_as_a_probe_is_told_to_the_next_task(book):
    now = probe(book, opened(book), "failed", 5)
    told = book.guarded(PLACES[0], "in", 1, 0, alone=True)
    assert (told.tried, told.ration, told.is_shut) == ({5}, 1, True)
    book.forget_before({PLACES[0]: 6})
    assert not book.guarded(PLACES[0], "in", 1, 0, alone=True).tried
    assert now > NOW


def test_what_a_partition_has_left_is_known(book):
    opened(book)
    page = book.pages["in"]
    assert page.waits_in(PARKED, 5)
    book.note("retry", [Told("in", looked=[Looked(PARKED, 5, 0)])], NOW)
    assert not page.waits_in(PARKED, 5)
    assert page.waits_in(PARKED, 6)


# In a file


def test_planners_and_driver_have_one_book(tmp_path):
    one, other = (
        SharedBook(tmp_path / "guards", {"in": Guard()}, 4, lambda: NOW) for _ in range(2)
    )
    with one.opened() as book:
        now = opened(book)
        book.note("main", [told(held(PLACES[0], 4))], NOW)
        assert book.ration("main", "in", PLACES, now)
    with other.opened() as book:
        assert book.ration("retry", "in", [PARKED], now) == {}
        assert breaker(book).why == SEEN
    assert other.seen().pages["in"].last == "main"
