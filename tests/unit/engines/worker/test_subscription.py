"""What a worker reads: source topics, and every delay topic of its app that there is."""

from __future__ import annotations

from redrive import App, RetryPolicy
from redrive.engines.worker.subscription import Subscription


def test_delay_topics_of_other_versions_are_part_of_it_also_when_they_come_later():
    app = App("shop", retry=RetryPolicy("5s"))
    app.handler("orders")(lambda record, ctx: None)
    there = ["shop.retry.1h", "shop.retry.soon", "shop.retry.60s", "shop.retry.5s"]
    topics = Subscription(app, lambda: there)
    assert list(topics) == ["orders", "shop.retry.5s", "shop.retry.1h"]
    assert topics.grow() == []
    there += ["shop.retry.1m", "shop.dead"]
    assert "shop.retry.1m" not in topics
    assert topics.grow() == ["shop.retry.1m"]
    assert "shop.retry.1m" in topics
    assert len(topics) == 4
    assert topics.delays["shop.retry.1m"] == 60_000


def test_a_delay_topic_that_no_policy_has_can_be_deleted():
    app = App("shop", retry=RetryPolicy("5s"))
    app.handler("orders")(lambda record, ctx: None)
    topics = Subscription(app, lambda: ["shop.retry.1h", "shop.retry.5s"])
    assert [topics.let_go(each) for each in ("shop.retry.1h", "shop.retry.5s", "orders")] == [
        True,
        False,
        False,
    ]
    assert list(topics) == ["orders", "shop.retry.5s"]
