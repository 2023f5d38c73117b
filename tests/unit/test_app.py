from __future__ import annotations

import asyncio
import json
from functools import partial, wraps

import pytest

from redrive import App, ConfigurationError, GiveBack, Guard, RetryPolicy, key


def handle(record, ctx):
    pass


def app_with(topic="orders", *, name="items", function=handle, app=None, **options):
    app = app or App(name)
    app.handler(topic, **options)(function)
    return app


def mistakes_of(app, engine=None):
    with pytest.raises(ConfigurationError) as raised:
        app.check(engine)
    return raised.value.problems


def test_an_app_names_its_topics_after_itself():
    app = App("items")
    app_with("a", app=app, retry=RetryPolicy("5m 5m 30m 1h30m", extra_delays="250ms"))
    app_with("b", app=app, retry=RetryPolicy("60m 300s"))
    assert app.dead_topic == "items.dead"
    assert dict(app.delay_topics) == {
        "items.retry.250ms": 250,
        "items.retry.5m": 300_000,
        "items.retry.30m": 1_800_000,
        "items.retry.1h": 3_600_000,
        "items.retry.1h30m": 5_400_000,
    }
    assert list(app.delay_topics.values()) == sorted(app.delay_topics.values())


def test_a_handler_added_after_a_check_has_its_delay_topics():
    app = app_with("a", retry=RetryPolicy("5m"))
    app.check()
    app_with("b", app=app, retry=RetryPolicy("10m"))
    assert list(app.delay_topics) == ["items.retry.5m", "items.retry.10m"]


def test_handlers_take_the_apps_policy_unless_they_have_their_own():
    app = App("items", retry=RetryPolicy("5m"))
    app_with("a", app=app)
    app_with("b", app=app, retry=RetryPolicy("10m"))
    assert app.handlers["a"].retry == RetryPolicy("5m")
    assert app.handlers["b"].retry == RetryPolicy("10m")


def test_decorated_functions_stay_what_they_were():
    app = App("items")
    assert app.handler("orders")(handle) is handle
    assert app.recover(recover) is recover
    assert app.recover("orders")(recover) is recover


def recover(record, error, ctx):
    pass


async def recover_async(record, error, ctx):
    pass


def test_a_handlers_own_recovery_comes_before_the_apps():
    app = app_with("a")
    app_with("b", app=app)
    app.recover(recover)
    app.recover("b")(recover_async)
    assert (app.handlers["a"].recover, app.handlers["a"].recover_is_async) == (recover, False)
    assert (app.handlers["b"].recover, app.handlers["b"].recover_is_async) == (recover_async, True)


async def handle_async(record, ctx):
    pass


class CalledAsync:
    async def __call__(self, record, ctx):
        pass


def in_a_thread(function):
    @wraps(function)
    async def call(*arguments):
        return await asyncio.to_thread(function, *arguments)

    return call


def passing_on(function):
    @wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (handle, False),
        (handle_async, True),
        (partial(handle_async), True),
        (CalledAsync(), True),
        (in_a_thread(handle), True),
        (passing_on(handle_async), True),
        (passing_on(handle), False),
    ],
    ids=["sync", "async", "partial", "object", "made async", "passed on", "sync decorated"],
)
def test_async_functions_are_recognised_however_they_are_wrapped(function, is_async):
    assert app_with(function=function).handlers["orders"].is_async is is_async


def test_all_mistakes_of_an_app_are_reported():
    app = App(
        "my app!",
        delivery="exactly-once",
        ordering="random",
        concurrency=0,
        retry="5m",
        commit="never",
        on_data_loss="ignore",
    )
    app_with("a", app=app)
    app_with("a", app=app)
    app_with("b c", app=app, retry="5m", timeout="soon")
    app_with("c", app=app, function=lambda record: None)
    app_with("d", app=app, batch=0)
    app_with("e", app=app, ack="later")
    app_with("f", app=app, batch=10, ack="manual")
    app_with("h", app=app, function=generating)
    app_with("i", app=app, timeout="0.4ms")
    app_with("j", app=app, decode=json, id=fetched, payload=fetched)
    app_with("k", app=app, decode="json")
    app_with("l", app=app, decode=fetched)
    app_with("m", app=app, decode=recover)
    app.recover("h")(generating_recovery)
    app.recover("nothing")(recover)
    app.recover(recover)
    app.recover(lambda record: None)
    app.resource(opened)
    app.resource(opened)
    app.resource(handle)
    problems = mistakes_of(app)
    assert all(problem.startswith('app "my app!": ') for problem in problems)
    expected = [
        "the name must be 1 to 200 letters",
        "delivery is 'exactly-once'; it can be 'at-least-once' or 'idempotent'",
        "ordering is 'random'; it can be 'partition' or 'key' or 'unordered'",
        "concurrency is 0; it can be 1 to 10000",
        "app!\": retry is '5m'; write RetryPolicy('5m')",
        "commit is 'never'; it can be 'batch' or 'immediate'",
        "on_data_loss is 'ignore'; it can be 'stop' or 'continue'",
        'two handlers for "a" (handle and handle)',
        'handler of "b c": that is not a valid Kafka topic name',
        "handler of \"b c\": retry is '5m'; write RetryPolicy('5m')",
        "handler of \"b c\": timeout: 'soon' is not a duration",
        'handler of "c": test_all_mistakes_of_an_app_are_reported.<locals>.<lambda> must take',
        'handler of "d": batch is 0',
        "handler of \"e\": ack is 'later'",
        'handler of "f": manual acks work only for single records',
        'handler of "h": generating yields, so its body would never run',
        'handler of "i": timeout is 0: every call would time out at once',
        'handler of "j": decode is the module json; give one of its functions, such as',
        'handler of "j": id=fetched is async',
        'handler of "j": payload=fetched is async',
        "handler of \"k\": decode is 'json'; it must be a function that takes the value's bytes",
        'handler of "l": decode=fetched is async or yields',
        'handler of "m": decode=recover must take (value)',
        "recovery generating_recovery yields, so its body would never run",
        'there is a recovery for "nothing", but no handler',
        "two recoveries for the app",
        "must take (record, error, ctx)",
        'resource "opened" is defined twice',
        'resource "handle" is not a generator',
    ]
    for text in expected:
        assert sum(text in problem for problem in problems) == 1, text
    assert len(problems) == len(expected)


def generating(record, ctx):
    yield


def generating_recovery(record, error, ctx):
    yield


async def fetched(value):
    pass


def opened():
    yield


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        (App("items"), "it has no handlers"),
        (app_with("items.dead"), "that is one of the app's own topics"),
        (app_with("items.retry.5m", retry=RetryPolicy("5m")), "one of the app's own topics"),
        (app_with("x" * 250), "not a valid Kafka topic name"),
        (app_with(".."), "not a valid Kafka topic name"),
        (app_with(app=App("items", concurrency="4")), "concurrency is '4'"),
        (app_with(app=App("items", delivery="transaction"), ack="manual"), "cannot be combined"),
        (app_with(batch="10"), "batch is '10'"),
        (app_with(id="order_id"), r"write id=field\('order_id'\) .* or id=header\('order_id'\)"),
        (app_with(id=7), "id is 7; it can be"),
        (app_with(id=key, id_scope="a b"), "id_scope is 'a b'; it must be"),
        (app_with(id=key, id_scope=7), "id_scope is 7; it must be"),
        (app_with(id_scope="payments"), "id_scope= has no effect without id=: add id="),
        (app_with(payload="data"), "payload is 'data'; it must be a function"),
        (app_with(name=""), "the name must be"),
        (app_with(name=None), "the name must be"),
        (app_with(function=partial(handle, 1, 2)), r"partial\(.* must take"),
    ],
)
def test_a_mistake_is_named(app, problem):
    with pytest.raises(ConfigurationError, match=problem):
        app.check()


def test_an_option_that_does_not_exist_is_named_with_the_one_that_is_meant():
    app = app_with(app=App("items", concurency=3, bootstap="localhost:9092", colour="red"))
    close, setting, unknown = (told.removeprefix('app "items": ') for told in mistakes_of(app))
    assert close == "concurency= is not an option of App(): did you mean concurrency=?"
    assert setting == "bootstap= is not an option of App(): did you mean bootstrap=?"
    said = "colour= is not an option of App(): known options: delivery, ordering,"
    assert unknown.startswith(said)
    assert app.settings == {}


def test_an_option_that_a_handler_does_not_have_is_named_in_the_same_way():
    app = App("items")
    app.handler("orders", retries=RetryPolicy())(handle)  # type: ignore[arg-type]  # -- misspelt
    app.handler("returns", colour="red")(handle)  # type: ignore[arg-type]  # -- none of its options
    close, unknown = (told.removeprefix('app "items": ') for told in mistakes_of(app))
    assert close == 'retries= is not an option of @app.handler("orders"): did you mean retry=?'
    said = 'colour= is not an option of @app.handler("returns"): known options: decode, id,'
    assert unknown.startswith(said)


def test_an_option_that_a_frame_handler_does_not_have_is_named_too():
    app = App("items")
    app.frame("orders", batch=3)(lambda frame: frame)  # type: ignore[arg-type]  # -- not for frames
    (told,) = mistakes_of(app)
    assert told.endswith(
        'batch= is not an option of @app.frame("orders"): known options: retry, sends'
    )


@pytest.mark.parametrize("topic", ["x" * 249, "a.b_c-D9", "items.retry.5m", "items.retry"])
def test_any_name_that_kafka_takes_is_a_source_topic(topic):
    app_with(topic).check()


def test_a_decorator_without_a_topic_is_not_silently_ignored():
    app = app_with("a")
    app.handler(handle)
    assert "@app.handler needs a topic" in mistakes_of(app)[0]


def test_nothing_can_be_added_once_the_app_has_started():
    app = app_with("a")
    assert list(app.handlers) == ["a"]
    adding = {
        'the handler of "b"': lambda: app_with("b", app=app),
        "the recovery for the app": lambda: app.recover(recover),
        'the recovery for "a"': lambda: app.recover("a")(recover),
        'the resource "opened"': lambda: app.resource(opened),
    }
    for what, add in adding.items():
        with pytest.raises(ConfigurationError, match=f"{what} was added after the app was started"):
            add()


def test_spark_refuses_what_only_the_worker_can_do_and_says_so():
    app = App("items", commit="immediate")
    app_with("a", app=app, retry=RetryPolicy(first=GiveBack(3)))
    app_with("b", app=app)
    app_with("c", app=app, timeout="5s")
    app.check()
    app.check("worker")
    problems = mistakes_of(app, "spark")
    assert [problem.partition(": ")[2].split(";")[0] for problem in problems] == [
        'handler of "a": GiveBack works only on the worker',
        (
            'handler of "c": timeout= on a function that is not async works only on the worker: a'
            " Spark task cannot go on without it"
        ),
        "commit= works only on the worker: on Spark each task commits",
    ]


def test_a_changed_copy_leaves_the_app_as_it_was():
    app = app_with("a", retry=RetryPolicy("5m"))
    changed = app.with_handlers(lambda handler: handler.replace(call=handle_async))
    assert changed.handlers["a"].call is handle_async
    assert app.handlers["a"].call is handle
    assert changed.delay_topics == app.delay_topics


@pytest.mark.parametrize(
    ("handler", "options", "said"),
    [
        ({"batch": 10}, {}, "batch= cannot be combined"),
        ({"retry": RetryPolicy("5m", redeliver="origin")}, {}, 'redeliver="origin" cannot'),
        ({"retry": RetryPolicy("5m", first=GiveBack(attempts=2))}, {}, "GiveBack cannot"),
        ({}, {"delivery": "transaction"}, "cannot be combined with transaction"),
        ({}, {"was": "old"}, "cannot be combined with was="),
        ({}, {"guard": Guard()}, "cannot be combined with guard="),
        ({}, {"after_bury": "hold"}, 'after_bury="hold" is not possible yet'),
        ({}, {"max_behind": 0}, "max_behind is 0"),
    ],
)
def test_what_cannot_keep_a_strict_order_is_refused_with_its_reason(handler, options, said):
    app = app_with(app=App("items", ordering="strict", **options), **handler)
    assert said in " ".join(mistakes_of(app))


def test_a_strict_order_is_for_one_source_topic_on_both_engines():
    app = app_with("a", app=App("items", ordering="strict"))
    app.check("worker")
    app.check("spark")
    app = app_with("b", app=app_with("a", app=App("items", ordering="strict")))
    assert "one source topic" in mistakes_of(app)[0]


def test_followers_are_found_also_when_the_order_is_not_strict_any_more():
    app = app_with(retry=RetryPolicy("5m"))
    assert app.waiting_topics(["items.retry.behind", "items.retry.5m"]) == {
        "items.retry.behind": 0,
        "items.retry.5m": 300_000,
    }
    assert app.can_do_without("items.retry.behind")
    strict = app_with(app=App("items", ordering="strict"), retry=RetryPolicy("5m"))
    assert not strict.can_do_without("items.retry.behind")
