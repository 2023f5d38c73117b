"""What every store promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stores import InMemory, InPostgres, Stepped, committed

from redrive.coroutines import run_sync
from redrive.delivery.store import Claim, Found, InboxId, StoreDownError
from redrive.record import IdentifiedWrite, Write

ONE = Claim(InboxId("orders", "1"), 1, b"one", "orders[0]@1")
TWO = Claim(InboxId("orders", "2"), 1, b"two", "orders[0]@2")
NONE = Claim(InboxId("orders", "3"), 1, None, "orders[0]@3")


def done(claim: Claim) -> Found:
    return Found("done", *claim[1:])


def identified(chosen: str) -> Write:
    write = IdentifiedWrite("told", b"key", chosen.encode())
    write.id = chosen
    return write


@pytest.fixture(params=["memory", "postgres"])
def under_test(request: pytest.FixtureRequest) -> Iterator[InMemory | InPostgres]:
    if request.param == "memory":
        yield InMemory()
        return
    made = InPostgres(request.getfixturevalue("redrive_database"))
    yield made
    made.close()


def test_new_ids_are_noted_as_done_and_nothing_was_known_of_them(under_test) -> None:
    with committed(under_test.store) as session:
        assert session.claim(ONE, TWO, NONE) == {}
    assert under_test.known() == {ONE.id: done(ONE), TWO.id: done(TWO), NONE.id: done(NONE)}


def test_what_was_known_of_an_id_is_reported_and_left_as_it_is(under_test) -> None:
    with committed(under_test.store) as session:
        session.claim(ONE, NONE)
    again = ONE._replace(fingerprint=b"other", source="elsewhere")
    with committed(under_test.store) as session:
        assert session.claim(again, TWO, NONE) == {ONE.id: done(ONE), NONE.id: done(NONE)}
    assert under_test.known() == {ONE.id: done(ONE), TWO.id: done(TWO), NONE.id: done(NONE)}


def test_an_id_is_known_within_its_scope_only(under_test) -> None:
    other = ONE._replace(id=InboxId("refunds", "1"), fingerprint=b"other", source="refunds[0]@1")
    with committed(under_test.store) as session:
        session.claim(ONE)
    with committed(under_test.store) as session:
        assert session.claim(other) == {}
        session.mark(parked=[(other.id, 2)])
    with committed(under_test.store) as session:
        session.mark(no_longer_parked=[ONE.id])
    parked = Found("parked", 2, b"other", "refunds[0]@1")
    assert under_test.known() == {ONE.id: done(ONE), other.id: parked}
    with committed(under_test.store) as session:
        session.claim(ONE, other)
        session.mark(done=[other], forgotten=[ONE.id])
    assert under_test.known() == {other.id: Found("done", 1, b"other", "refunds[0]@1")}


def test_records_without_a_value_have_no_fingerprint(under_test) -> None:
    for _ in range(2):
        with committed(under_test.store) as session:
            session.claim(NONE)
            session.mark(done=[NONE])
    assert under_test.known() == {NONE.id: done(NONE)}


def test_a_parked_id_is_reported_with_its_attempt_and_can_become_done(under_test) -> None:
    with committed(under_test.store) as session:
        session.claim(ONE, TWO)
        session.mark(parked=[(ONE.id, 2)])
    parked = Found("parked", 2, b"one", "orders[0]@1")
    assert under_test.known() == {ONE.id: parked, TWO.id: done(TWO)}
    edited = ONE._replace(attempt=2, fingerprint=b"edited")
    with committed(under_test.store) as session:
        assert session.claim(edited) == {ONE.id: parked}
        session.mark(done=[edited])
    assert under_test.known()[ONE.id] == Found("done", 2, b"edited", "orders[0]@1")


def test_a_forgotten_id_is_as_if_nobody_had_seen_it(under_test) -> None:
    with committed(under_test.store) as session:
        session.claim(ONE, TWO)
        session.mark(forgotten=[ONE.id])
    assert under_test.known() == {TWO.id: done(TWO)}


def test_ids_that_were_not_claimed_are_forgotten_only_where_they_are_parked(under_test) -> None:
    with committed(under_test.store) as session:
        session.claim(ONE, TWO)
        session.mark(parked=[(ONE.id, 2)])
    with committed(under_test.store) as session:
        session.mark(no_longer_parked=[ONE.id, TWO.id, InboxId("orders", "unknown")])
    assert under_test.known() == {TWO.id: done(TWO)}


def test_what_is_rolled_back_leaves_nothing(under_test) -> None:
    session = Stepped(under_test.store)
    session.claim(ONE)
    session.begin()
    assert session.keep(identified("chosen"))
    session.send(Write("told", b"key", b"value"))
    session.roll_back()
    assert under_test.known() == {}
    assert under_test.outbox() == []
    with committed(under_test.store) as session:
        session.begin()
        assert session.keep(identified("chosen"))


def test_outbound_records_are_there_with_the_commit(under_test) -> None:
    with committed(under_test.store) as session:
        session.send(Write("told", b"key", b"first"), Write("told", None, None))
        session.send(Write("told", b"key", b"second", (("name", b"\xff"), ("null", None))))
        assert under_test.outbox() == []
    assert sorted(under_test.outbox(), key=str) == [None, b"first", b"second"]


def test_an_id_of_the_senders_own_is_sent_once(under_test) -> None:
    with committed(under_test.store) as session:
        session.begin()
        assert session.keep(identified("chosen"), Write("told", b"key", b"plain"))
        session.begin()
        assert not session.keep(identified("another"), identified("chosen"))
        session.begin()
        assert session.keep(identified("another"))
        session.send(identified("chosen"), identified("another"))
    with committed(under_test.store) as session:
        session.begin()
        assert not session.keep(identified("chosen"))
    assert sorted(map(str, under_test.outbox())) == ["b'another'", "b'chosen'"]


def test_a_call_that_is_undone_takes_no_claims_with_it(under_test) -> None:
    with committed(under_test.store) as session:
        session.claim(ONE)
        session.begin()
        session.undo(ValueError("the handler failed"))
    assert under_test.known() == {ONE.id: done(ONE)}


def test_what_is_old_enough_expires(under_test) -> None:
    with committed(under_test.store) as session:
        session.claim(ONE)
    under_test.grow_old(10_000)
    with committed(under_test.store) as session:
        session.claim(TWO)
    assert not run_sync(under_test.store.expire(older_than=5_000, is_async=False))
    assert under_test.known() == {TWO.id: done(TWO)}


def test_a_session_that_is_broken_off_has_done_nothing_and_cannot(under_test) -> None:
    hung = Stepped(under_test.store)
    hung.claim(ONE)
    run_sync(hung.session.watch())
    run_sync(hung.session.break_off())
    assert under_test.known() == {}
    with committed(under_test.store) as session:
        assert session.claim(ONE, TWO) == {}  # and nobody waits for it
    with pytest.raises(StoreDownError):
        hung.commit()
    hung.roll_back()
    assert under_test.known() == {ONE.id: done(ONE), TWO.id: done(TWO)}


def test_as_many_sessions_can_be_broken_off_as_there_are_threads_to_lose(under_test) -> None:
    hung = [Stepped(under_test.store) for _ in range(4)]  # all that the store has
    for each in hung:
        run_sync(each.session.watch())
        run_sync(each.session.break_off())
    with committed(under_test.store) as session:
        session.claim(ONE)
    for each in hung:
        each.roll_back()
    places = [Stepped(under_test.store) for _ in range(4)]  # no more and no less than before
    for each in places:
        each.roll_back()
    assert under_test.known() == {ONE.id: done(ONE)}


def test_operators_forget_exactly_what_a_record_has_done(under_test) -> None:
    refund = ONE._replace(id=InboxId("refunds", "1"))
    with committed(under_test.store) as session:
        session.claim(ONE, TWO, NONE, refund)
        session.mark(parked=[(TWO.id, 2)])
    store = under_test.store
    known = run_sync(store.known([ONE.id, InboxId("orders", "unknown")]))
    assert known == {ONE.id: done(ONE)}
    # Done by another record; waiting for another attempt; not there.
    others = {NONE.id: "orders[0]@99", TWO.id: TWO.source, InboxId("orders", "unknown"): "x"}
    assert run_sync(store.forget_done(others)) == 0
    assert run_sync(store.forget_done({ONE.id: ONE.source, **others})) == 1
    assert {*under_test.known()} == {TWO.id, NONE.id, refund.id}
    assert run_sync(store.forget_done({})) == 0
    assert run_sync(store.known([])) == {}
