"""The plan of an app's topics, without Kafka; and that applying it makes it true."""

from __future__ import annotations

import pytest

from redrive.app import App
from redrive.cli.topics import as_data, look, undeclared
from redrive.durations import milliseconds
from redrive.policy import RetryPolicy
from redrive.ports import TopicState
from redrive.testing.memory_broker import BROKER_DEFAULTS, MemoryBroker
from redrive.testing.virtual_clock import VirtualClock
from redrive.topics import (
    HEADER_ROOM,
    MOST_PARTITIONS,
    OUTAGE,
    Configure,
    Create,
    Grow,
    all_topic_names,
    apply,
    plan_topics,
    topic_names,
)

DAY = milliseconds("1d")


def make_app(redeliver="handler"):
    app = App("shop", retry=RetryPolicy("5s 1h", redeliver=redeliver))
    for topic in ("orders", "returns"):
        app.handler(topic)(lambda record, ctx: None)
    return app


def topic(partitions=3, replication=1, **config):
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return TopicState(partitions, replication, {**BROKER_DEFAULTS, **settings})


SOURCES = {"orders": topic(), "returns": topic()}
DELAY = {
    "message_timestamp_type": "LogAppendTime",
    "retention_ms": str(OUTAGE + milliseconds("1h")),
    "max_message_bytes": str(1_048_588 + HEADER_ROOM),
}
DEAD = {"retention_ms": "-1", "max_message_bytes": str(1_048_588 + HEADER_ROOM)}
RIGHT = {
    **SOURCES,
    "shop.retry.5s": topic(**DELAY),
    "shop.retry.1h": topic(**DELAY),
    "shop.dead": topic(**DEAD),
    "shop.dead.state": topic(partitions=1, cleanup_policy="compact"),
    "shop.retry.rules": topic(partitions=1, cleanup_policy="compact"),
}


@pytest.mark.parametrize("operators", ["shop.dead.state", "shop.retry.rules"])
def test_a_missing_state_topic_is_a_note_that_is_applied_and_no_run_needs_it(operators):
    described = {name: state for name, state in RIGHT.items() if name != operators}
    [problem] = problems(described, operators)
    assert problem.weight == "note"
    assert isinstance(problem.fix, Create)
    assert (problem.fix.partitions, problem.fix.config["cleanup.policy"]) == (1, "compact")
    assert operators not in topic_names(make_app())


@pytest.mark.parametrize(
    ("operators", "why"),
    [("shop.dead.state", "replayed twice"), ("shop.retry.rules", "held records would run")],
)
def test_a_state_topic_that_forgets_is_wrong(operators, why):
    [problem] = problems({**RIGHT, operators: topic(partitions=1)}, operators)
    assert (problem.weight, why in problem.text) == ("wrong", True)


def test_an_app_without_delays_needs_no_rules_about_what_waits():
    app = App("shop")
    app.handler("orders")(lambda record, ctx: None)
    assert "shop.retry.rules" not in all_topic_names(app)
    assert "rules" not in [topic.role for topic in plan_topics(app, {}).topics]


def problems(described, name, app=None, **options):
    plan = plan_topics(app or make_app(), described, **options)
    (found,) = (topic for topic in plan.topics if topic.name == name)
    return list(found.problems)


def the_problem(described, name, app=None, **options):
    (problem,) = problems(described, name, app, **options)
    return problem


def test_all_right():
    plan = plan_topics(make_app(), RIGHT)
    assert plan.ok
    assert list(plan.problems) == plan.fixes == []
    assert [(topic.name, topic.role) for topic in plan.topics] == [
        ("orders", "source"),
        ("returns", "source"),
        ("shop.retry.5s", "delay"),
        ("shop.retry.1h", "delay"),
        ("shop.dead", "dead"),
        ("shop.dead.state", "state"),
        ("shop.retry.rules", "rules"),
    ]
    assert all_topic_names(make_app()) == [topic.name for topic in plan.topics]


# What is missing


def selling_app():
    app = make_app()
    app.handler("sales", sends=["invoices", "orders"])(lambda record, ctx: None)
    return app


def test_a_declared_outbound_topic_is_created_as_safe_as_its_sources():
    app = selling_app()
    sources = dict.fromkeys(("orders", "returns", "sales"), topic(6, 3, min_insync_replicas="2"))
    fix = Create("invoices", 6, {"min.insync.replicas": "2"}, 3)
    assert the_problem(sources, "invoices", app).fix == fix
    assert the_problem({}, "invoices", app).fix == Create("invoices", 3, {}, None)


def test_an_outbound_topic_that_exists_is_its_readers_business():
    compacted = topic(1, 1, cleanup_policy="compact", max_message_bytes="1000")
    assert problems({**RIGHT, "invoices": compacted}, "invoices", selling_app()) == []


def test_what_is_not_declared_is_said_not_to_be_checked():
    plan = plan_topics(selling_app(), RIGHT)
    assert [(each.name, each.role) for each in plan.topics][2:4] == [
        ("sales", "source"),
        ("invoices", "outbound"),
    ]
    assert plan.undeclared == ("orders", "returns")
    assert "the handlers of orders, returns send to" in undeclared(plan)


def test_a_delay_topic_is_created_as_it_must_be():
    problem = the_problem(SOURCES, "shop.retry.1h")
    assert problem.text == "missing"
    assert problem.fix == Create(
        "shop.retry.1h",
        3,
        {
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(milliseconds("1h") + 7 * DAY),
            "cleanup.policy": "delete",
            "retention.bytes": "-1",
            "max.message.bytes": str(1_048_588 + HEADER_ROOM),
            "min.insync.replicas": "1",
        },
        1,
    )


def test_the_dead_topic_is_created_to_keep_its_records():
    fix = the_problem(SOURCES, "shop.dead").fix
    assert isinstance(fix, Create)
    assert fix.config["retention.ms"] == "-1"
    assert fix.config["cleanup.policy"] == "delete"
    assert "message.timestamp.type" not in fix.config


def test_new_topics_are_like_their_sources():
    sources = {
        "orders": topic(6, 3, min_insync_replicas="2", max_message_bytes="5000000"),
        "returns": topic(2, 2, min_insync_replicas="2"),
    }
    fix = the_problem(sources, "shop.retry.5s").fix
    assert (fix.partitions, fix.replication) == (6, 2)
    assert fix.config["min.insync.replicas"] == "2"
    assert fix.config["max.message.bytes"] == str(5_000_000 + HEADER_ROOM)


def test_a_delay_topic_needs_no_more_than_a_dozen_partitions():
    sources = {**SOURCES, "orders": topic(100)}
    assert the_problem(sources, "shop.retry.5s").fix.partitions == MOST_PARTITIONS == 12


def test_message_bytes_stay_a_number_that_kafka_takes():
    sources = {"orders": topic(max_message_bytes="2147483647")}
    assert the_problem(sources, "shop.dead").fix.config["max.message.bytes"] == "2147483647"


def test_without_any_source_the_brokers_defaults_are_assumed():
    fix = the_problem({}, "shop.dead").fix
    assert fix.replication is None
    assert fix.config["max.message.bytes"] == str(1_048_588 + HEADER_ROOM)


def test_a_source_topic_is_not_created_silently():
    described = {**RIGHT}
    del described["orders"]
    problem = the_problem(described, "orders")
    assert problem.fix is None
    assert problem.weight == "wrong"
    assert "--create-sources" in problem.text
    assert the_problem(described, "orders", create_sources=True).fix == Create("orders", 3, {}, 1)


def test_a_longer_outage_needs_a_longer_retention():
    fix = the_problem(SOURCES, "shop.retry.5s", outage=30 * DAY).fix
    assert fix.config["retention.ms"] == str(30 * DAY + 5000)


# What is set wrongly

WRONG = [
    (
        "shop.retry.5s",
        "message_timestamp_type",
        "CreateTime",
        "LogAppendTime",
        "the broker received a record decides",
    ),
    ("shop.retry.5s", "cleanup_policy", "compact", "delete", "share a key"),
    ("shop.retry.5s", "cleanup_policy", "compact,delete", "delete", "share a key"),
    ("shop.retry.5s", "retention_ms", str(OUTAGE), str(OUTAGE + 5000), "an outage of 7d"),
    ("shop.retry.5s", "retention_bytes", "1000000", "-1", "deleted when there are many"),
    (
        "shop.retry.5s",
        "max_message_bytes",
        "1048588",
        str(1_048_588 + HEADER_ROOM),
        "would not fit",
    ),
    ("shop.dead", "cleanup_policy", "compact", "delete", "share a key"),
    ("shop.dead", "retention_ms", str(7 * DAY), "-1", "before anybody looks"),
    ("shop.dead", "max_message_bytes", "1000", str(1_048_588 + HEADER_ROOM), "would not fit"),
]


@pytest.mark.parametrize(("name", "key", "now", "right", "why"), WRONG)
def test_a_wrong_setting_is_reported_and_can_be_corrected(name, key, now, right, why):
    state = RIGHT[name]
    setting = key.replace("_", ".")
    described = {**RIGHT, name: state._replace(config={**state.config, setting: now})}
    problem = the_problem(described, name)
    assert problem.fix == Configure(name, {setting: right})
    assert problem.text.startswith(f"{setting} is {now}, should be {right}: ")
    assert why in problem.text
    assert not plan_topics(make_app(), described).ok


@pytest.mark.parametrize(
    ("name", "key", "now"),
    [
        ("shop.retry.5s", "retention.ms", "-1"),
        ("shop.retry.5s", "retention.ms", str(OUTAGE + 5000)),
        ("shop.dead", "retention.ms", str(30 * DAY)),
        ("shop.dead", "max.message.bytes", "9999999"),
        ("shop.dead", "message.timestamp.type", "CreateTime"),
        ("shop.dead", "min.insync.replicas", "2"),
    ],
)
def test_what_is_more_than_enough_is_left_alone(name, key, now):
    state = RIGHT[name]
    described = {**RIGHT, name: state._replace(config={**state.config, key: now})}
    assert problems(described, name) == []


def test_settings_that_are_not_told_are_not_judged():
    described = {name: TopicState(3, 1, {}) for name in RIGHT}
    plan = plan_topics(make_app(), described)
    assert plan.ok
    assert all("cannot be read" in problem.text for problem in plan.problems)
    assert len([*plan.problems]) == len(RIGHT)


def test_less_safe_than_the_source():
    described = {name: state._replace(replication=3) for name, state in RIGHT.items()}
    described["orders"] = topic(3, 3, min_insync_replicas="2")
    described["returns"] = topic(3, 3, min_insync_replicas="2")
    found = problems(described, "shop.dead")
    assert [problem.fix for problem in found] == [
        Configure("shop.dead", {"min.insync.replicas": "2"})
    ]


def test_replication_can_only_be_raised_by_hand():
    described = {**RIGHT, "orders": topic(3, 3), "returns": topic(3, 3)}
    problem = the_problem(described, "shop.dead")
    assert problem.fix is None
    assert problem.weight == "wrong"
    assert "kafka-reassign-partitions" in problem.text


def test_fewer_partitions_work_and_can_be_grown():
    described = {**RIGHT, "shop.retry.5s": RIGHT["shop.retry.5s"]._replace(partitions=1)}
    problem = the_problem(described, "shop.retry.5s")
    assert (problem.weight, problem.fix) == ("note", Grow("shop.retry.5s", 3))
    assert plan_topics(make_app(), described).ok


def test_more_partitions_are_left_alone():
    described = {**RIGHT, "shop.retry.5s": RIGHT["shop.retry.5s"]._replace(partitions=50)}
    assert plan_topics(make_app(), described).fixes == []


def test_a_source_that_forgets_before_an_outage_is_over_is_noted():
    described = {**RIGHT, "orders": topic(retention_ms=str(DAY))}
    problem = the_problem(described, "orders")
    assert (problem.weight, problem.fix) == ("note", None)
    assert "retention.ms is 1d: an outage of 7d" in problem.text
    compacted = {**RIGHT, "orders": topic(retention_ms=str(DAY), cleanup_policy="compact")}
    assert problems(compacted, "orders") == []


def test_writing_back_to_a_compacted_source_is_noted():
    described = {**RIGHT, "orders": topic(cleanup_policy="compact")}
    assert problems(described, "orders") == []
    problem = the_problem(described, "orders", make_app(redeliver="origin"))
    assert problem.weight == "note"
    assert 'redeliver="origin" writes records back' in problem.text


# Applying


@pytest.fixture
def broker():
    return MemoryBroker(VirtualClock())


def test_applying_makes_all_right_and_a_second_time_does_nothing(broker):
    broker.create("orders", 6)
    broker.create("returns", 2, {"max.message.bytes": "5000000"})
    broker.create("shop.retry.5s", 1, {"cleanup.policy": "compact"})
    plan, applied = look(make_app(), broker, outage=OUTAGE, do_apply=True)
    assert plan.ok
    assert all(error is None for _, error in applied)
    assert broker.partitions("shop.retry.5s") == broker.partitions("shop.dead") == 6
    assert look(make_app(), broker, outage=OUTAGE, do_apply=True) == (plan, [])


def test_looking_changes_nothing(broker):
    plan, applied = look(make_app(), broker, outage=OUTAGE)
    assert (plan.ok, applied) == (False, [])
    assert broker.describe(topic_names(make_app())) == {}


def test_sources_are_created_only_when_asked(broker):
    plan, _ = look(make_app(), broker, outage=OUTAGE, do_apply=True)
    assert not plan.ok
    assert broker.partitions("orders") == 0
    plan, _ = look(make_app(), broker, outage=OUTAGE, do_apply=True, create_sources=True)
    assert plan.ok
    assert broker.partitions("orders") == 3


def test_one_failure_does_not_keep_the_others_from_being_done(broker):
    broker.create("orders")
    broker.create("returns")
    plan = plan_topics(make_app(), broker.describe(topic_names(make_app())))
    broker.create("shop.retry.5s")  # somebody was faster
    answers = [error for _, error in apply(plan, broker)]
    assert "already exists" in str(answers[0])
    assert answers[1:] == [None, None, None, None]


def test_the_same_for_programs(broker):
    broker.create("orders")
    plan, applied = look(make_app(), broker, outage=OUTAGE, do_apply=True)
    data = as_data(plan, applied)
    assert (data["app"], data["ok"]) == ("shop", False)
    assert data["applied"][0] == {
        "action": "create shop.retry.5s with 1 partition",
        "error": None,
    }
    assert data["topics"][1] == {
        "name": "returns",
        "role": "source",
        "exists": False,
        "partitions": None,
        "replication": None,
        "problems": [
            {
                "weight": "wrong",
                "text": "missing: create it with the settings you want, or let"
                " `redrive topics --apply --create-sources` do it",
                "fix": None,
            }
        ],
    }


def test_with_strict_order_followers_have_a_topic_and_rooms_the_numbers_of_their_source():
    app = App("items", ordering="strict", retry=RetryPolicy("5m"))
    app.handler("orders")(lambda record, ctx: None)
    many = TopicState(40, 1, {})
    few = TopicState(12, 1, {})
    plan = plan_topics(app, {"orders": many, "items.retry.5m": few})
    fixes = {fix.name: fix for fix in plan.fixes}
    assert fixes["items.retry.behind"].partitions == 40
    assert "message.timestamp.type" not in fixes["items.retry.behind"].config
    assert fixes["items.retry.5m"].partitions == 40
    assert not plan.ok
