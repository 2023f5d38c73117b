"""When a worker leaves its group and joins it again, because its assignment does not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redrive.engines.worker import rejoining
from redrive.engines.worker.rejoining import Rejoining, why_rejoin
from redrive.kafka.groups import Member, members_of
from redrive.record import TopicPartition


def places(*names: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(name[0], int(name[1:])) for name in names)


def member(name: str, topics: str, *names: str) -> Member:
    return Member(name, frozenset(topics), places(*names))


ALL = places("a0", "a1", "b0", "b1")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([member("me", "ab", "a0", "a1", "b0", "b1")], ""),
        ([member("me", "ab", "a0", "b0"), member("you", "ab", "a1", "b1")], ""),
        ([member("me", "ab", "a0", "a1", "c0")], "assigned c, to which"),
        ([member("me", "ab", "a0", "a1")], "no worker is assigned 2 partitions of b"),
        (
            [member("me", "ab"), member("you", "a", "a0", "a1")],
            "no worker is assigned 2 partitions",
        ),
        ([member("me", "ab"), member("you", "ab", *("a0", "a1", "b0", "b1"))], "you has 4 part"),
        ([member("me", "ab", "a0"), member("you", "ab", "a1", "b0", "b1")], "this worker has 1"),
        ([member("me", "ab", *("a0", "a1", "b0", "b1")), member("you", "c", "c0")], ""),
        ([member("you", "ab", "a0", "a1")], ""),  # it has not joined yet
    ],
)
def test_why(members, why):
    found = why_rejoin("me", frozenset("ab"), ALL, members)
    assert (why in found) if why else not found


def test_what_it_cannot_read_is_no_unfair_share():
    members = [member("me", "a", "a0", "a1"), member("you", "bc", "b0", "b1", "c0", "c1", "c2")]
    assert not why_rejoin("me", frozenset("a"), places("a0", "a1"), members)


class Bench:
    """A worker that has a0 and a1, in a group as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members: list[Member] | None = [member("me", "ab", "a0", "a1")]
        self.asked = self.rejoined = 0
        self.now = 0.0
        monkeypatch.setattr(rejoining, "monotonic", lambda: self.now)
        self.assignment: Any = SimpleNamespace(
            settled=True, partitions=dict.fromkeys(places("a0", "a1")), foreign=set()
        )
        self.rejoining = self.make("me")

    def make(self, name: str | None) -> Rejoining:
        return Rejoining(
            name,
            SimpleNamespace(shared_out=["a", "b"]),  # type: ignore[arg-type]  # -- as much as is used
            self.assignment,
            members=self.look_at_group,
            rejoin=self.rejoin,
        )

    def look_at_group(self) -> list[Member] | None:
        self.asked += 1
        return self.members

    def rejoin(self) -> None:
        self.rejoined += 1

    def look(self, seconds: float = 1, ends: int = 5, **positions: int) -> None:
        self.now += seconds
        at = {TopicPartition(name[0], int(name[1])): n for name, n in positions.items()}
        self.rejoining.look(dict.fromkeys(ALL, ends), {**dict.fromkeys(ALL, ends), **at})


@pytest.fixture
def bench(monkeypatch) -> Bench:
    return Bench(monkeypatch)


def test_partitions_that_nobody_has_are_counted_and_it_joins_again(bench, caplog):
    bench.look()
    assert bench.rejoining.unassigned == {"b": 2}
    assert bench.rejoined == 1
    assert "no worker is assigned 2 partitions of b" in caplog.text
    bench.members = [member("me", "ab", *("a0", "a1", "b0", "b1"))]
    bench.look()
    assert not bench.rejoining.unassigned
    assert bench.rejoined == 1


def test_it_gives_the_group_time_to_settle_before_it_joins_once_more(bench):
    for _ in range(20):
        bench.look()
    assert bench.rejoined == 1
    bench.look(20)
    assert bench.rejoined == 2


def test_an_unfair_share_is_a_reason_once(bench):
    bench.members = [member("me", "ab"), member("you", "ab", *("a0", "a1", "b0", "b1"))]
    for _ in range(3):
        bench.look(60)
    assert bench.rejoined == 1


def test_a_group_that_is_not_settled_is_looked_at_later(bench):
    bench.members = None
    bench.look()
    bench.assignment.settled = False
    bench.look()
    assert (bench.asked, bench.rejoined) == (1, 0)


def test_whoever_has_everything_asks_nobody(bench):
    bench.assignment.partitions = dict.fromkeys(ALL)
    bench.look()
    assert bench.asked == 0
    bench.assignment.foreign = places("c0")
    bench.look()
    assert bench.asked == 1


def test_once_all_is_well_it_asks_only_about_what_stands_still(bench):
    bench.members = [member("me", "ab", "a0", "a1"), member("you", "ab", "b0", "b1")]
    bench.look()
    assert bench.asked == 1
    for at in range(20):
        bench.look(b0=at, ends=30)  # it moves
    for _ in range(20):
        bench.look(a0=0)  # its own
    assert bench.asked == 1
    for _ in range(12):
        bench.look(b0=0)
    assert bench.asked == 2
    bench.members = [member("me", "ab", "a0", "a1")]
    for _ in range(12):
        bench.look(b0=0)
    assert bench.rejoined == 1


def test_members_without_a_name_and_those_of_the_new_protocol_need_no_looking_after(bench):
    bench.rejoining = bench.make(None)
    bench.look()
    assert bench.asked == 0


# What a broker says


UUID = "-4443f1b2-01d8-4294-886c-2b5ace642f6a"
HAS_A = b"\0\0\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0"
READS_AB = b"\0\3\0\0\0\2\0\1a\0\1b\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0"
OWNS_A0_B1 = (
    b"\0\3\0\0\0\2\0\1a\0\1b\0\0\0\0\0\0\0\2\0\1a\0\0\0\1\0\0\0\0\0\1b\0\0\0\1\0\0\0\1\0\0\0\7\0\0"
)


def answer(state: str, *members: tuple[bytes, bytes]) -> Any:
    group = SimpleNamespace(
        state=state,
        error=None,
        members=[SimpleNamespace(id="me" + UUID, metadata=m, assignment=a) for m, a in members],
    )
    client = SimpleNamespace(list_groups=lambda *_, **__: [group])
    return SimpleNamespace(ask=lambda _, request: request(client))


def test_members_are_read_as_brokers_write_them():
    found = members_of(answer("Stable", (READS_AB, HAS_A), (READS_AB, b"")), "shop")
    assert found == [member("me", "ab", "a0", "a1"), member("me", "ab")]


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Empty", "Dead"])
def test_a_group_that_is_not_stable_says_nothing(state):
    assert members_of(answer(state, (b"", b"")), "shop") is None


def test_a_member_that_gives_partitions_up_will_join_again():
    assert members_of(answer("Stable", (OWNS_A0_B1, HAS_A)), "shop") is None
