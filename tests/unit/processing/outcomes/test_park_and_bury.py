"""What dead and parked records say of their cause: the same, whichever process buries them."""

from __future__ import annotations

import logging

import pytest

from redrive import App, Bury, ConfigurationError, Retry, RetryPolicy
from redrive.fingerprint import Fingerprint, grouped
from redrive.history import attempts
from redrive.testing import Simulation

HERE = __name__


def buried(app, *values, partitions=1):
    with Simulation(app, partitions=partitions) as sim:
        for value in values:
            sim.send("orders", value)
        sim.run_until_empty()
        return [dead.envelope for dead in sim.dead]


def shop(**options):
    app = App("shop", retry=RetryPolicy("5m 30m"), **options)

    @app.handler("orders")
    def handle(record, ctx):
        if record.value == b"bad":
            raise Bury("no such thing")
        raise KeyError(record.value.decode())

    return app


def test_a_letter_carries_the_fingerprint_of_reason_class_and_own_functions():
    [letter] = buried(shop(), "x")
    place = (f"{HERE}:shop.<locals>.handle",)
    assert letter.error_group == Fingerprint("exhausted", "KeyError", place).id


def test_letters_of_one_cause_have_one_group_whatever_their_messages():
    found = buried(shop(), "a", "b", "bad")
    assert len({each.error_group for each in found}) == 2


def test_the_attempts_travel_with_the_record_as_a_time_line():
    [letter] = buried(shop(), "x")
    tried = attempts(letter.history)
    assert [(each.attempt, each.error) for each in tried] == [
        (1, "KeyError"),
        (2, "KeyError"),
        (3, "KeyError"),
    ]
    assert [each.at - tried[0].at for each in tried] == [0, 300_000, 2_100_000]


def test_a_parked_record_has_the_group_of_its_cause_without_a_reason():
    with Simulation(shop()) as sim:
        sim.send("orders", "x")
        sim.run()
        [parked] = sim.parked
        sim.run_until_empty()
        [dead] = sim.dead
    assert grouped(parked.envelope.error_group, "exhausted") == dead.envelope.error_group


def test_a_letter_that_waited_for_its_recovery_is_in_the_same_group():
    """It is buried by a later process, which does not have the error any more."""
    app, failures = shop(), iter([OSError("down")])

    @app.recover
    def recover(record, error, ctx):
        for failure in failures:
            raise failure

    [waited] = buried(app, "x")
    [at_once] = buried(shop(), "x")
    assert waited.error_group == at_once.error_group
    assert waited.error_type == "KeyError"


def test_a_record_that_an_older_version_parked_is_grouped_by_its_class():
    app = App("shop", unhandled="0s", retry=RetryPolicy("5m"))
    app.handler("others")(lambda record, ctx: None)
    with Simulation(shop()) as old:
        old.send("orders", "x")
        old.run()
        [parked] = old.sent("shop.retry.5m")
    ours = ("redrive-error-group", "redrive-history")
    headers = tuple(each for each in parked.headers if each[0] not in ours)
    with Simulation(app) as sim:
        sim.send("shop.retry.5m", b"x", headers=headers)
        sim.run_until_empty()
        [dead] = sim.dead
    assert dead.envelope.error_group == Fingerprint("no-handler", "KeyError").id


def test_the_app_may_name_the_group_itself():
    app = shop()

    @app.fingerprint
    def by_word(record, error):
        return None if isinstance(error, Bury) else "not found"

    bad, missing, another = buried(app, "a", "b", "bad")
    assert missing.error_group == another.error_group == Fingerprint("exhausted", "not found").id
    assert bad.error_group not in (None, missing.error_group)


class Panic(BaseException):
    """What is no Exception, as those of Rust's panics."""


@pytest.mark.parametrize("answer", [7, ZeroDivisionError("broken"), Panic("broken"), SystemExit(1)])
def test_a_fingerprint_function_that_fails_costs_nobody_anything(answer, caplog):
    app = shop()

    @app.fingerprint
    def wrong(record, error):
        if isinstance(answer, BaseException):
            raise answer
        return answer

    with caplog.at_level(logging.WARNING, "redrive.records"):
        letters = buried(app, "a", "b")
    assert {each.error_group for each in letters} == {
        Fingerprint("exhausted", "KeyError", (f"{HERE}:shop.<locals>.handle",)).id
    }
    assert sum("failures are grouped without it" in line for line in caplog.messages) == 1


def test_mistakes_in_a_fingerprint_are_found_at_start():
    app = shop()
    app.fingerprint(lambda record: "x")

    @app.fingerprint
    async def later(record, error): ...

    with pytest.raises(ConfigurationError) as caught:
        app.check()
    said = str(caught.value)
    assert "two fingerprints" in said
    assert said.count("must be a plain function of (record, error)") == 2


def test_records_that_are_simply_done_are_not_looked_at():
    app = App("shop")
    asked = []
    app.handler("orders")(lambda record, ctx: None)
    app.fingerprint(lambda record, error: asked.append(record))
    assert buried(app, "a", "b") == []
    assert asked == []


def test_retry_after_keeps_the_history_too():
    app = App("shop", retry=RetryPolicy("5m"))

    @app.handler("orders")
    def handle(record, ctx):
        raise Retry("later", after="7m")

    [letter] = buried(app, "x")
    assert [each.error for each in attempts(letter.history)] == ["redrive.signals.Retry"] * 2
