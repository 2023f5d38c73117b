"""Transactional ids: rivals of one app share them, and no two apps do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.kafka.transactional_producer import transactional_id
from redrive.permissions import transactional_prefix
from redrive.record import TopicPartition

names = st.text("ab1._-", min_size=1, max_size=6)
owners = st.tuples(names, st.builds(TopicPartition, names, st.integers(0, 20)))


@given(owners, owners)
def test_no_two_apps_topics_or_partitions_share_one(one, other):
    assert (transactional_id(*one) == transactional_id(*other)) == (one == other)


@given(owners, names)
def test_they_begin_with_the_prefix_of_their_app_and_of_no_other(owner, other):
    named = transactional_id(*owner)
    assert named.startswith(transactional_prefix(other)) == (owner[0] == other)


def test_names_that_contain_each_other_are_told_apart():
    ours = transactional_id("billing", TopicPartition("eu-invoices", 0))
    assert ours == "billing/eu-invoices/0"
    assert ours != transactional_id("billing-eu", TopicPartition("invoices", 0))
