"""An app under a new name: refused, unless something is said; then it goes on where it was."""

from __future__ import annotations

import pytest

from redrive.engines import preflight
from redrive.errors import NotReadyError

APPS = """
    def handle(record, ctx):
        note(value=record.value.decode(), attempt=ctx.attempt)
        if record.value == b"late" and ctx.attempt == 1:
            raise Retry("later")

    app = App(NAME, retry=RetryPolicy("1s"))
    app.handler(topic("in"))(handle)

    renamed = App(NAME + "-v2", retry=RetryPolicy("1s"))
    renamed.handler(topic("in"))(handle)

    framed = App(NAME + "-v3")
    framed.frame(topic("in"))(lambda rows: rows)

    told = App(NAME + "-v4", was=NAME, retry=RetryPolicy("1s"))
    told.handler(topic("in"))(handle)

    back = App(NAME, was=NAME + "-v4", retry=RetryPolicy("1s"))
    back.handler(topic("in"))(handle)

    slow = App(NAME + "-s", retry=RetryPolicy("1h"))
    slow.handler(topic("in"))(handle)

    faster = App(NAME + "-f", was=NAME + "-s", retry=RetryPolicy("1s"))
    faster.handler(topic("in"))(handle)

    forgetful = App(NAME + "-f", retry=RetryPolicy("1s"))
    forgetful.handler(topic("in"))(handle)

    third = App(NAME + "-t", was=NAME + "-f", retry=RetryPolicy("1s"))
    third.handler(topic("in"))(handle)

    larger = App(NAME + "-v5", retry=RetryPolicy("1s"))
    larger.handler(topic("in"))(handle)
    larger.handler(topic("more"))(handle)
"""


@pytest.fixture
def made(world):
    """Where the apps are, with their topics; the first of them has run, and has a parked record."""
    target = world.app(APPS, partitions=1)
    module = target.partition(":")[0]
    world.create(world.topic("more"))
    for name in ("renamed", "framed", "told", "slow", "faster", "third", "larger"):
        world.create_own(world.loaded(f"{module}:{name}"))
    return module


def ran(world, start, made, target="app"):
    world.send("in", b"1", b"late")
    run = start(f"{made}:{target}", dynamic=True)
    world.wait(run, "both", lambda: len(world.notes()) == 2)
    run.stop()


def check(world, made, name, engine="worker", **options):
    target = f"{made}:{name}"
    preflight.check(world.loaded(target), world.settings, target, engine=engine, **options)


def test_it_is_refused_on_both_engines_with_what_to_do(world, start, made):
    check(world, made, "renamed")  # nobody has run yet
    ran(world, start, made)
    for name, engine in [("renamed", "worker"), ("renamed", "spark"), ("framed", "spark")]:
        with pytest.raises(NotReadyError) as refused:
            check(world, made, name, engine)
        assert f', was="{world.prefix}")' in str(refused.value)
        assert "--new-app" in str(refused.value)
        check(world, made, name, engine, new_app=True)
    check(world, made, "larger", new_app=True)
    with pytest.raises(NotReadyError, match="--new-app"):
        check(world, made, "larger")  # with one more topic it may be the same app
    check(world, made, "app")


def test_with_progress_of_its_own_nobody_asks_again(world, start, made):
    ran(world, start, made)
    ran_again = start(f"{made}:renamed", new_app=True)
    world.wait(ran_again, "all of it", lambda: len(world.notes()) >= 4)
    ran_again.stop()
    check(world, made, "renamed")


def test_an_app_that_reads_other_topics_as_well_is_another_app(world, start, made):
    ran(world, start, made, target="larger")
    check(world, made, "app")


def test_with_its_old_name_it_goes_on_where_it_was_and_runs_what_was_parked(world, start, made):
    ran(world, start, made)
    world.send("in", b"2")
    run = start(f"{made}:told", until="empty")
    assert run.worker.await_termination(60)
    seen = [(note["value"], note["attempt"]) for note in world.notes()]
    assert sorted(seen) == [("1", 1), ("2", 1), ("late", 1), ("late", 2)]
    start(f"{made}:told", until="empty").worker.await_termination(60)
    assert len(world.notes()) == 4


def test_under_its_old_name_it_is_refused_until_it_is_renamed_back(world, start, made):
    ran(world, start, made)
    assert start(f"{made}:told", until="empty").worker.await_termination(60)
    assert len(world.notes()) == 3
    with pytest.raises(NotReadyError, match=f'was="{world.prefix}-v4"'):
        check(world, made, "app")
    check(world, made, "app", new_app=True)
    world.send("in", b"2")
    assert start(f"{made}:back", until="empty").worker.await_termination(60)
    assert [note["value"] for note in world.notes()][3:] == ["2"]
    check(world, made, "app")


def test_without_its_old_name_it_is_refused_while_records_wait_under_it(world, start, made):
    ran(world, start, made, target="slow")
    assert start(f"{made}:faster", until="once").worker.await_termination(60)
    check(world, made, "faster")
    with pytest.raises(NotReadyError, match=rf"1 in {world.prefix}-s\.retry\.1h"):
        check(world, made, "forgetful")
    check(world, made, "forgetful", new_app=True)
    with pytest.raises(NotReadyError, match=rf'run App\("{world.prefix}-f", was="'):
        check(world, made, "third")
    check(world, made, "third", new_app=True)
    check(world, made, "third")  # it was said at the first start
