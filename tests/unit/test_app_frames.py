from __future__ import annotations

import pytest

from redrive import App, ConfigurationError, InPlace, RetryPolicy


def problems(app: App, engine: str | None = "spark") -> str:
    with pytest.raises(ConfigurationError) as raised:
        app.check(engine)  # type: ignore[arg-type]  # -- a word of Engine's
    return str(raised.value)


def framed(**options: object) -> App:
    app = App("shop", **options)  # type: ignore[arg-type]  # -- App says what they are
    app.frame("orders", retry=RetryPolicy("1s"))(lambda frame: frame)
    return app


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_frame_handler_runs_on_spark(delivery):
    app = framed(delivery=delivery)
    app.check("spark")
    assert app.frame_handler is not None
    assert list(app.delay_topics) == ["shop.retry.1s"]


def test_on_the_worker_it_is_a_mistake():
    assert "DataFrames exist only on Spark" in problems(framed(), "worker")


def test_an_app_has_one_frame_handler_and_no_others():
    two, mixed = framed(), framed()
    two.frame("payments")(lambda frame: frame)
    mixed.handler("payments")(lambda record, ctx: None)
    assert "no other handlers" in problems(two)
    assert "no other handlers" in problems(mixed)


@pytest.mark.parametrize("delivery", ["idempotent", "outbox", "idempotent+outbox"])
def test_a_database_transaction_cannot_be_around_a_frame(delivery):
    assert "at-least-once and transaction" in problems(framed(delivery=delivery))


def test_what_is_for_single_records_is_refused_all_at_once():
    app = App("shop")

    async def handle(first, second):
        pass

    app.frame("orders", retry=RetryPolicy("1s", first=InPlace(attempts=2)))(handle)
    app.recover(lambda record, error, ctx: None)

    @app.resource
    def things():
        yield 1

    told = problems(app)
    for word in ("first=", "recoveries", "resources", "is async", "must take (frame)"):
        assert word in told
