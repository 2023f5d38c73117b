"""Trying letters: what would pass now, and nothing of it remains."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import wait
from threading import Event, Thread

import pytest

from redrive import App, ConfigurationError, RetryPolicy
from redrive.dead import DeadLetters, Filter, Trying
from redrive.testing import Simulation
from redrive.tuning import TRIAL_HANGING


class Shop:
    def __init__(self, **options):
        self.broken = True
        self.called = []
        self.app = App("shop", retry=RetryPolicy("5s"), **options)

    def handle(self, record, ctx):
        self.called.append((record.data, ctx.trying, ctx.attempt))
        if self.broken or record.data == "never":
            raise KeyError(record.data)
        ctx.send("done", record.value)

    def buried(self, *values):
        self.sim = Simulation(self.app)
        for value in values:
            self.sim.send("orders", value, key="k")
        self.sim.run_until_empty()
        self.called.clear()
        self.broken = False
        self.ends = len(self.sim.sent("done")), len(self.sim.sent("shop.dead"))
        return DeadLetters(self.sim.broker, app=self.app)


@pytest.fixture
def shop():
    made = Shop()
    made.app.handler("orders", decode=json.loads)(made.handle)
    return made


def test_what_would_pass_and_what_would_fail_and_how(shop):
    letters = shop.buried('"a"', '"never"', '"b"', "{")
    trials = Trying(letters).run()
    assert trials.total == {"pass": 2, "fail": 2}
    by_error = {each.error_type: each for each in trials.groups.values()}
    assert by_error["KeyError"].verdicts == {"pass": 2, "fail": 1}
    assert by_error["KeyError"].sends == {"done": 2}
    assert by_error["KeyError"].errors == {"KeyError": 1}
    assert by_error["redrive.errors.Undecodable"].errors == {"Undecodable": 1}
    assert trials.scanned.complete


def test_an_example_of_each_failure_says_what_where_and_of_which_letter(shop):
    trials = Trying(shop.buried('"never"', '"a"', "{", '"never"')).run()
    by_error = {each.error_type: each for each in trials.groups.values()}
    assert {each: str(example) for each, example in by_error["KeyError"].examples.items()} == {
        "KeyError": f"'never' in {__name__}:Shop.handle (shop.dead[0]@1)"
    }
    undecodable = by_error["redrive.errors.Undecodable"].as_data()["examples"]["Undecodable"]
    assert undecodable["place"] == "shop.dead[0]@0"
    assert "JSONDecodeError" in undecodable["message"]
    assert undecodable["where"] == ""


def test_as_many_sends_are_shown_as_were_asked_for(shop):
    letters = shop.buried('"a"', '{"n": 1}', '"c"')
    [group] = Trying(letters, show_sends=2).run().groups.values()
    assert group.sends == {"done": 3}
    assert group.as_data()["sent"] == [
        {"place": "shop.dead[0]@0", "topic": "done", "key": None, "value": '"a"'},
        {"place": "shop.dead[0]@1", "topic": "done", "key": None, "value": '{\n  "n": 1\n}'},
    ]
    [group] = Trying(letters).run().groups.values()
    assert group.sent == []


def masking(handle):
    shop = Shop(masked=["card"])

    def first(record, ctx):
        if shop.broken:
            raise KeyError("x")
        handle(record, ctx)

    shop.app.handler("orders", decode=json.loads)(first)
    return shop


def test_masked_fields_are_in_no_example():
    """Neither those of the letter nor those that a fix has put there."""

    def handle(record, ctx):
        raise ValueError(f"{record.data['card']} is not one of {record.data['of']}")

    letters = masking(handle).buried('{"card": "4711-old", "of": "4711-old"}')
    trying = Trying(letters, fix=lambda record: {"card": "0815-new", "of": record.data["card"]})
    [group] = trying.run().groups.values()
    assert group.examples["ValueError"].message == "*** is not one of ***"


def test_masked_fields_are_in_no_message_that_is_shown():
    def handle(record, ctx):
        data = {"paid": record.data["card"], "card": record.data["other"], "n": record.data["n"]}
        ctx.send("paid", json.dumps(data), key=record.data["card"])
        ctx.send("paid", record.data["other"])

    letters = masking(handle).buried('{"card": "4711-2222", "other": "0815-other", "n": 1}')
    [group] = Trying(letters, show_sends=2).run().groups.values()
    first, second = group.sent
    assert first.key == "***"
    assert json.loads(first.value) == {"paid": "***", "card": "***", "n": 1}
    assert second.value == "(10 bytes; fields of it are masked)"


def test_nothing_of_it_remains(shop):
    letters = shop.buried('"a"')
    Trying(letters).run()
    assert shop.called == [("a", True, 1)]
    assert (len(shop.sim.sent("done")), len(shop.sim.sent("shop.dead"))) == shop.ends
    shop.sim.run_until_empty()
    assert shop.sim.sent("done") == []


def test_a_fix_is_tried_with_it(shop):
    letters = shop.buried('"never"', '"worse"')

    def fix(record):
        if record.value == b'"worse"':
            raise ValueError("no")
        return '"now"'

    trials = Trying(letters, fix=fix).run()
    assert trials.total == {"pass": 1, "fix-failed": 1}
    assert shop.called == [("now", True, 1)]


@pytest.mark.parametrize("form", ["async", "batch", "async batch", "manual", "manual fails"])
def test_all_forms_of_handlers_can_be_tried(form):
    shop = Shop()
    options = {"batch": 10} if "batch" in form else {}
    if "manual" in form:
        options["ack"] = "manual"

    def act(record, ctx):
        if shop.broken:
            raise KeyError("x")
        if "manual" in form:
            ctx.fail(ValueError("no")) if "fails" in form else ctx.ack()

    def plain(given, ctx):
        act(given, ctx)

    async def later(given, ctx):
        act(given, ctx)

    shop.app.handler("orders", **options)(later if "async" in form else plain)
    letters = shop.buried("a", "b")
    shop.sim.close()
    trials = Trying(letters).run()
    assert trials.total == ({"fail": 2} if "fails" in form else {"pass": 2})


def manual(handle):
    """An app whose handler acknowledges by itself, once it is repaired."""
    shop = Shop()

    def sync(record, ctx):
        return ctx.fail(KeyError("x")) if shop.broken else handle(record, ctx)

    async def later(record, ctx):
        return ctx.fail(KeyError("x")) if shop.broken else await handle(record, ctx)

    is_async = asyncio.iscoroutinefunction(handle)
    shop.app.handler("orders", ack="manual")(later if is_async else sync)
    return shop


def verdicts(shop, *values):
    letters = shop.buried(*values)
    shop.sim.close()
    trials = Trying(letters).trials(letters.scan())
    return {each.found.letter.record.value.decode(): each.verdict for each in trials}


def test_a_manual_handler_that_fails_its_record_later_from_a_thread_has_not_passed():
    threads = []

    def handle(record, ctx):
        returns = Event()

        def later():
            returns.wait()
            ctx.fail(ValueError("still broken"))

        threads.append(Thread(target=later))
        threads[-1].start()
        returns.set()

    trials = Trying(manual(handle).buried("a", "b")).run()
    for each in threads:
        each.join()
    assert trials.total == {"fail": 2}
    [group] = trials.groups.values()
    assert group.errors == {"ValueError": 2}


def test_a_manual_handler_that_fails_its_record_later_in_a_task_has_not_passed():
    tasks = []

    async def handle(record, ctx):
        async def later():
            for _ in range(10):
                await asyncio.sleep(0)
            ctx.fail(ValueError("still broken"))

        tasks.append(asyncio.create_task(later()))

    assert verdicts(manual(handle), "a", "b") == {"a": "fail", "b": "fail"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_that_is_not_acknowledged_in_time_has_not_passed(is_async, monkeypatch):
    monkeypatch.setattr("redrive.dead.acknowledgement.TRIAL_PATIENCE", 0.01)
    contexts = []

    def handle(record, ctx):
        for earlier in contexts:
            earlier.fail(ValueError("too late"))
        contexts.append(ctx)
        if record.value == b"b":
            ctx.ack()

    async def later(record, ctx):
        handle(record, ctx)

    shop = manual(later if is_async else handle)
    found = verdicts(shop, "a", "b", "c")
    assert found == {"a": "not-acknowledged", "b": "pass", "c": "not-acknowledged"}


def test_the_first_word_counts_also_if_the_handler_fails_after_it():
    def handle(record, ctx):
        ctx.ack()
        raise ValueError("after it was done")

    assert verdicts(manual(handle), "a") == {"a": "pass"}


def test_resources_are_those_that_are_named_for_it(shop):
    @shop.app.resource
    def bank():
        yield "the real one"

    letters = shop.buried('"a"', "{")
    trying = Trying(letters)
    assert trying.run().total == {"decoded": 1, "fail": 1}
    assert "name what takes their place with --resources" in trying.limits[0]
    assert shop.called == []
    assert Trying(letters, resources={"bank": "a fake"}).run().total == {"pass": 1, "fail": 1}
    with pytest.raises(ConfigurationError, match="the app has no resource x"):
        Trying(letters, resources={"x": 1, "bank": 2})


def test_without_a_database_to_roll_back_in_it_stops_after_decoding():
    shop = Shop(delivery="idempotent")
    shop.app.handler("orders")(shop.handle)
    letters = DeadLetters(Simulation(shop.app).broker, app=shop.app)
    assert "ctx.db needs a database" in Trying(letters).limits[0]


def test_letters_without_a_handler_are_said_to_have_none(shop):
    letters = shop.buried('"a"')
    other = App("shop")
    other.handler("returns")(lambda record, ctx: None)
    assert Trying(DeadLetters(letters.log, app=other)).run().total == {"no-handler": 1}


def test_it_needs_an_app(shop):
    letters = shop.buried('"a"')
    with pytest.raises(ConfigurationError, match="needs an app"):
        Trying(DeadLetters(letters.log, topic="shop.dead"))
    assert Trying(letters).run(Filter(keys=("other",))).total == {}


def test_causes_without_end_are_counted_together(shop, monkeypatch):
    """Their ids are headers, which anybody can write: memory does not grow with them."""
    monkeypatch.setattr("redrive.dead.trying.DEAD_GROUPS", 2)
    letters = shop.buried()
    for group in ("a", "b", "c", "a", "d"):
        headers = (("redrive-dead-reason", b"rejected"), ("redrive-error-group", group.encode()))
        shop.sim.send("shop.dead", "1", headers=headers)
    tried = Trying(letters).run()
    assert {name: each.verdicts.total() for name, each in tried.groups.items()} == {
        "a": 2,
        "b": 1,
        "(others)": 2,
    }


class Hanging:
    """A function that hangs until the test is over, and says when it does."""

    def __init__(self):
        self.hangs = Event()
        self.over = Event()

    def here(self):
        self.hangs.set()
        self.over.wait()

    def wait(self, ends, seconds):
        """As for the end of a call, but only until it hangs, however slow the machine is."""
        while not (found := wait(ends, 0.001)).done and not self.hangs.is_set():
            pass
        self.hangs.clear()
        return found


@pytest.fixture
def hanging(monkeypatch):
    made = Hanging()
    monkeypatch.setattr("redrive.dead.patience.wait", made.wait)
    yield made
    made.over.set()


def hung_in(part, hanging, **options):
    """An app, of which this part hangs with the value "b", once its handler is repaired."""
    shop = Shop(**options)

    def act(value):
        if value == b"b" and not shop.broken:
            hanging.here()
        return value

    def handle(given, ctx):
        if shop.broken:
            raise KeyError("x")
        if "handler" in part:
            act(given[0].value if "batch" in part else given.value)

    async def later(record, ctx):
        handle(record, ctx)

    decode = act if part == "decoder" else None
    batch = {"batch": 5} if "batch" in part else {}
    shop.app.handler("orders", decode=decode, **batch)(later if "async" in part else handle)
    fix = (lambda record: act(record.value)) if part == "fix" else None
    return shop, fix


PARTS = ["handler", "batch handler", "async handler", "decoder", "fix"]


@pytest.mark.parametrize("part", PARTS)
def test_a_letter_that_hangs_is_given_up_and_the_others_are_tried(part, hanging):
    shop, fix = hung_in(part, hanging)
    letters = shop.buried("a", "b", "c")
    shop.sim.close()
    shown = []
    trials = Trying(letters, fix=fix).run(progress=lambda now: shown.append(now.total.total()))
    assert trials.total == {"pass": 2, "not-ended": 1}
    [group] = trials.groups.values()
    example = group.examples["HandlerTimeout"]
    assert (example.message, example.place) == ("did not end within 30s", "shop.dead[0]@1")
    assert f"{__name__}:Hanging.here" in example.where
    assert (trials.stopped, trials.scanned.complete) == ("", True)
    assert shown == [1, 2, 3]


def test_what_hangs_keeps_no_command_from_ending(hanging):
    shop, _ = hung_in("handler", hanging)
    Trying(shop.buried("b")).run()
    [thread] = [each for each in threading.enumerate() if each.name == "redrive-trial"]
    assert thread.daemon
    hanging.over.set()
    thread.join()


def test_after_a_few_that_hang_no_more_are_tried(hanging):
    shop, _ = hung_in("handler", hanging)
    trials = Trying(shop.buried("a", *"bbbb")).run()
    assert trials.total == {"pass": 1, "not-ended": TRIAL_HANGING}
    assert trials.stopped.startswith("shop.dead[0]@3 and others before it did not end in time")
    assert trials.as_data()["stopped"] == trials.stopped
    assert str(trials.scanned) == "4 letters match; 4 scanned in shop.dead, more not read"


def test_hanging_threads_are_bounded_whatever_is_tried_between_them(hanging):
    shop, _ = hung_in("handler", hanging)
    trials = Trying(shop.buried(*"abababab")).run()
    assert trials.total == {"pass": TRIAL_HANGING, "not-ended": TRIAL_HANGING}


@pytest.mark.parametrize("own", [None, 10])
def test_an_async_handler_that_waits_for_ever_is_cancelled(own):
    """Its thread goes on with the next letter: nothing is left behind."""
    cancelled = []

    async def handle(record, ctx):
        if shop.broken:
            raise KeyError("x")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(record.value)

    shop = Shop()
    shop.app.handler("orders", timeout=None if own is None else f"{own}ms")(handle)
    letters = shop.buried(*"abcd")
    shop.sim.close()
    trials = Trying(letters, timeout="10ms" if own is None else "1h").run()
    assert trials.total == {"not-ended": TRIAL_HANGING}
    assert cancelled == [b"a", b"b", b"c"]
    [group] = trials.groups.values()
    assert group.examples["HandlerTimeout"].message == "did not end within 10ms"


def test_a_decoder_that_hangs_is_not_called_again_to_mask_what_is_shown(hanging):
    shop, _ = hung_in("decoder", hanging, masked=["card"])
    [group] = Trying(shop.buried("b")).run().groups.values()
    assert group.verdicts == {"not-ended": 1}
