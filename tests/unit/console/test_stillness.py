"""When a topic was last worked on, from looks at committed offsets and members."""

from __future__ import annotations

from redrive.console.stillness import Stillness
from redrive.record import TopicPartition

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)


def looked(*looks):
    """Each look: the time, what is committed, what waits, and what members have."""
    stillness = Stillness()
    for now, committed, waiting, attended in looks:
        stillness.look(now, committed, waiting, attended)
    return stillness


def test_a_topic_is_unread_from_the_first_look_at_it_on():
    stillness = looked((5, {ORDERS: 1}, ["orders"], []), (9, {ORDERS: 1}, ["orders"], []))
    assert stillness.unread_since("orders") == 5


def test_whoever_commits_works_on_the_topic_and_on_no_other():
    both = ["orders", "bills"]
    stillness = looked(
        (5, {ORDERS: 1, BILLS: None}, both, []), (9, {ORDERS: 2, BILLS: None}, both, [])
    )
    assert (stillness.unread_since("orders"), stillness.unread_since("bills")) == (9, 5)
    assert stillness.quiet_since() == 9


def test_members_work_on_what_they_are_assigned_to_also_if_they_take_long():
    both = ["orders", "bills"]
    stillness = looked(
        (5, {ORDERS: 1, BILLS: 1}, both, both), (9, {ORDERS: 1, BILLS: 1}, both, ["orders"])
    )
    assert (stillness.unread_since("orders"), stillness.unread_since("bills")) == (9, 5)


def test_nothing_is_unread_while_nothing_waits_and_then_from_that_moment():
    stillness = looked((5, {ORDERS: 1}, [], []), (9, {ORDERS: 1}, [], []))
    assert stillness.unread_since("orders") is None
    stillness.look(12, {ORDERS: 1}, ["orders"], [])
    stillness.look(15, {ORDERS: 1}, ["orders"], [])
    assert (stillness.unread_since("orders"), stillness.quiet_since()) == (12, 5)


def test_nothing_is_known_before_the_first_look():
    assert (Stillness().unread_since("orders"), Stillness().quiet_since()) == (None, None)


def test_an_app_that_never_ran_has_not_become_quiet():
    stillness = looked((5, {ORDERS: None}, ["orders"], []), (9, {ORDERS: None}, ["orders"], []))
    assert (stillness.unread_since("orders"), stillness.quiet_since()) == (5, None)
