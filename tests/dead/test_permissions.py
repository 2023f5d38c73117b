"""`redrive dead` on a secured Kafka: each permission that is missing is one sentence."""

from __future__ import annotations

import json

import pytest
from running import World
from shops import letters_of

from redrive.errors import RedriveError
from redrive.permissions import permissions

APP = """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.handler(topic("in"))
    def handle(record, ctx): ...
"""


@pytest.fixture
def secured(redrive_secure_stack, redrive_prefix, tmp_path, monkeypatch):
    """A Kafka on which only who may do something can do it, seen by its administrator."""
    monkeypatch.syspath_prepend(str(tmp_path))
    given = redrive_secure_stack.settings
    made = World(given["bootstrap"], tmp_path, redrive_prefix, given["security"])
    yield made
    made.close()


def test_each_permission_that_is_missing_is_said_and_nothing_is_lost(
    secured, redrive, as_user, redrive_secure_stack, redrive_prefix
):
    target = secured.app(APP, partitions=1)
    app = secured.loaded(target)
    secured.publisher.publish([*letters_of(app, ["a", "b", "c"])])
    needed, users = permissions(app, "dead replay"), redrive_secure_stack.users
    as_user(needed)

    def said(*arguments):
        answer = redrive("dead", *arguments)
        assert isinstance(answer.exception, RedriveError), (answer.output, answer.exception)
        return str(answer.exception)

    def without(role, operation, *arguments):
        """What a command says while that is missing."""
        (one,) = [each for each in needed if each.role == role]
        gone = [one._replace(operations=(operation,))]
        users.revoke(redrive_prefix, gone)
        sentence = said(*arguments)
        users.grant(redrive_prefix, gone)
        advice = "; `redrive topics module:app --acls` prints all that `redrive dead` needs"
        assert sentence.endswith(advice)
        return sentence.removesuffix(advice)

    look, replay = ("groups", target), ("replay", target, "--yes")
    careful = (*replay, "--stop-above", "5%")
    dead, state, delay = (secured.topic(name) for name in ("dead", "dead.state", "retry.1s"))
    for command in (look, replay):
        # Who may not read it may not even see that it is there.
        assert without("dead topic", "READ", *command).endswith(f"grant DESCRIBE on topic {dead}")
    assert f"grant WRITE on topic {state}" in without("state topic", "WRITE", *replay)
    ids = f"grant WRITE on transactional ids that begin with {redrive_prefix}/"
    assert ids in without("transactional ids", "WRITE", *replay)
    # Who wants to see what becomes of copies, and may not, hears it before any is written.
    assert f"on group {redrive_prefix}" in without("group", "DESCRIBE", *careful)
    source = secured.topic("in")
    assert f"on topic {source}" in without("source topics", "READ", *careful)
    assert secured.records("retry.1s") == []
    assert json.loads(redrive("dead", "jobs", target, "--json").stdout) == {"operations": []}

    # Only what is written shows that copies may not be: the job stands, and goes on later.
    assert f"grant WRITE on topic {delay}" in without("delay topics", "WRITE", *replay)
    assert secured.records("retry.1s") == []
    (job,) = json.loads(redrive("dead", "jobs", target, "--json").stdout)["operations"]
    assert job["counts"] == {}
    assert f"jobs {target} --resume {job['id']}" in said(*replay)
    answer = redrive("dead", "jobs", target, "--resume", job["id"], "--json")
    assert json.loads(answer.stdout)["counts"] == {"sent": 3}
    assert secured.values("retry.1s") == [b"a", b"b", b"c"]
    # What was done cannot be seen: better no answer than letters that seem open.
    assert f"grant READ on topic {state}" in without("state topic", "READ", *look)
