"""Reading dead letters: groups, filters, states, and how far a scan came. Without Kafka."""

from __future__ import annotations

import io
import json

import letters
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import ConfigurationError
from redrive.dead import DeadLetters, Filter
from redrive.dead.filters import Place, age
from redrive.dead.groups import OTHERS, Group, Groups
from redrive.dead.letter import Letter
from redrive.dead.scan import Scan
from redrive.dead.showing import Seen
from redrive.dead.states import Mark, Marks
from redrive.dead.stats import Stats
from redrive.kafka.errors import MissingTopicError
from redrive.record import TopicPartition
from redrive.tuning import DEAD_GROUPS, DEAD_NAMES, DEAD_PATTERNS

DEAD = TopicPartition("shop.dead", 0)


@pytest.fixture
def sim():
    with letters.buried(
        letters.shop(), "missing 1", "missing 2", "bad 7", "away db1", "bad 9", "ok"
    ) as sim:
        yield sim


@pytest.fixture
def dead(sim):
    return DeadLetters(sim.broker, app=sim.app)


def test_letters_of_one_cause_are_one_group_the_largest_first(dead):
    groups, scanned = dead.groups()
    assert [(each.count, each.reason, each.error_type) for each in groups] == [
        (2, "exhausted", "KeyError"),
        (2, "rejected", "redrive.signals.Bury"),
        (1, "exhausted", "OSError"),
    ] or groups[0].count == groups[1].count == 2
    assert (scanned.scanned, scanned.matched, scanned.complete) == (5, 5, True)
    assert str(scanned) == "5 of 5 letters scanned in shop.dead (all of them)"


def test_a_scan_of_some_places_says_that_no_others_were_looked_at(dead):
    _, one = dead.groups(Filter(places=("shop.dead[0]@1",)))
    assert str(one) == "1 of 1 letter scanned in shop.dead (only at shop.dead[0]@1)"
    assert (one.complete, one.as_data()["places"]) == (True, ["shop.dead[0]@1"])
    several = tuple(f"shop.dead[0]@{offset}" for offset in range(DEAD_NAMES + 1))
    _, some = dead.groups(Filter(places=several))
    assert str(some).endswith("@8, shop.dead[0]@9 and 1 more place)")


def test_messages_of_one_group_are_told_apart_by_their_pattern(dead):
    [bad] = dead.groups(Filter(reasons=("rejected",)))[0]
    assert dict(bad.patterns) == {"order <n> is bad": 2}
    assert bad.topics == {"orders": 2}
    assert bad.example.startswith("shop.dead[0]@")


def one(dead, **wanted):
    found, _ = dead.some(Filter(**wanted))
    return {each.letter.record.value.decode() for each in found}


def test_filters(dead, sim):
    [away] = [each for each in dead.groups()[0] if each.error_type == "OSError"]
    assert one(dead, groups=(away.id,)) == one(dead, groups=(away.id[:6],)) == {"away db1"}
    assert one(dead, errors=("Bury",)) == one(dead, reasons=("rejected",)) == {"bad 7", "bad 9"}
    assert one(dead, errors=("ury",)) == set()
    assert one(dead, text="DB1 is") == {"away db1"}
    assert one(dead, keys=("k1",)) == {"missing 2"}
    assert one(dead, origins=("orders",), attempts=2) == {"missing 1", "missing 2", "away db1"}
    assert one(dead, origins=("returns",)) == set()
    assert one(dead, origins=("orders[0]@1",)) == {"missing 2"}
    assert one(dead, origins=("orders[0]@1", "orders[0]@2")) == {"missing 2", "bad 7"}
    assert len(one(dead, origins=("orders[0]",))) == 5
    assert one(dead, origins=("orders[1]@1", "order[0]@1", "orders[0]@11", "orders[1]")) == set()
    [found] = dead.some(Filter(text="db1"))[0]
    assert one(dead, ids=(found.letter.id,)) == {"away db1"}
    assert one(dead, places=(found.letter.place,)) == {"away db1"}
    assert one(dead, places=("shop.dead[1]",)) == set()
    assert one(dead, since=sim.clock.now() + 1) == set()
    assert len(one(dead, until=sim.clock.now() + 1)) == 5
    assert one(dead, states=("discarded",)) == set()
    assert len(one(dead, states=("open",))) == 5


def test_headers_of_a_record_can_be_asked_for():
    app = letters.shop()
    with letters.buried(app) as sim:
        sim.send("orders", "bad 1", headers=(("tenant", b"a"),))
        sim.send("orders", "bad 2", headers=(("tenant", b"b"),))
        sim.run_until_empty()
        dead = DeadLetters(sim.broker, app=app)
        assert one(dead, headers=("tenant=a",)) == {"bad 1"}
        assert one(dead, headers=("tenant",)) == {"bad 1", "bad 2"}
        assert one(dead, headers=("redrive-app",)) == set()


def test_a_filter_survives_being_written_down():
    wanted = Filter(groups=("1",), text="x", since=7, states=("open",))
    assert Filter.of(json.loads(json.dumps(wanted.as_data()))) == wanted
    assert str(wanted) == "groups 1; text x; since 7; states open"
    assert str(Filter()) == "all letters"


def test_a_filter_of_a_newer_version_does_not_mean_all_letters():
    with pytest.raises(ConfigurationError, match="selected by tenants, which this version"):
        Filter.of({"tenants": ["a"]})


@pytest.mark.parametrize("place", ["shop.dead", "shop.dead[x]@1", "shop.dead@1", ""])
def test_a_place_that_is_none_is_a_sentence(place):
    with pytest.raises(ConfigurationError, match="write topic\\[partition\\]@offset"):
        Filter(places=(place,))
    if "[" in place or "@" in place:
        with pytest.raises(ConfigurationError, match="write topic\\[partition\\]@offset"):
            Filter(origins=("orders", place))
    assert Place.of("a.b[3]@9") == ("a.b", 3, 9)


def test_a_state_that_there_is_not_is_a_sentence():
    with pytest.raises(ConfigurationError, match="there is no state 'gone'; it can be open, fail"):
        Filter(states=("gone",))


def test_a_scan_that_stops_early_says_so(dead):
    found, scanned = dead.some(limit=2)
    assert len(found) == 2
    assert not scanned.complete
    assert str(scanned) == "2 letters match; 2 scanned in shop.dead, more not read"


def test_what_dies_after_the_start_of_a_scan_is_not_in_it(sim, dead):
    scan = dead.scan()
    sim.send("orders", "bad 10")
    sim.run_until_empty()
    assert len(list(scan)) == 5


def test_what_retention_deletes_meanwhile_is_counted(sim, dead):
    scan = dead.scan()
    sim.broker.truncate(DEAD, 2)
    assert len(list(scan)) == 3
    assert (scan.result.deleted, scan.result.complete) == (2, True)
    assert "2 deleted by retention meanwhile" in str(scan.result)


def test_only_the_partition_of_a_place_is_read(sim):
    scan = Scan(sim.broker, "shop.dead", Filter(places=("shop.dead[0]@3",)))
    assert [each.letter.record.offset for each in scan] == [3]
    assert scan.result.scanned == 1


def test_a_dead_topic_that_is_not_there_is_a_sentence(sim):
    with pytest.raises(MissingTopicError, match=r'topic "nobody\.dead" does not exist'):
        DeadLetters(sim.broker, topic="nobody.dead").groups()


def test_show_decodes_as_the_app_does_and_masks():
    app = letters.App("shop", masked=["card", "owner.name"])

    @app.handler("orders", decode=json.loads)
    def handle(record, ctx):
        raise ValueError(record.data["n"])

    with letters.buried(app) as sim:
        value = {"n": 1, "card": "4711", "owner": {"name": "A", "id": 2}, "list": [{"card": 1}]}
        sim.send("orders", value, key="k")
        sim.send("orders", "{broken", key="k")
        sim.run()
        dead = DeadLetters(sim.broker, app=app)
        shown = dead.show("shop.dead[0]@0").value
        assert shown.how == "decoded"
        assert json.loads(shown.text) == {
            "n": 1,
            "card": "***",
            "owner": {"name": "***", "id": 2},
            "list": [{"card": "***"}],
        }
        broken = dead.show("shop.dead[0]@1").value
        assert broken.how == "hidden"
        assert "JSONDecodeError" in broken.problem
        assert "broken" not in broken.text


@pytest.mark.parametrize(
    ("value", "how", "text"),
    [
        (b'{"a": 1}', "json", '{\n  "a": 1\n}'),
        ("häuser".encode(), "text", "häuser"),
        (b"\x1b[2J", "text", "\\x1b[2J"),
        (b"\xff\x00", "hex", "ff00"),
    ],
)
def test_without_a_decoder_a_value_is_json_text_or_bytes(value, how, text):
    from redrive.dead.showing import value_of

    shown = value_of(Letter(letters.foreign("dead", value=value)))
    assert (shown.how, shown.text) == (how, text)


def test_a_letter_that_is_not_there_is_a_sentence(dead):
    with pytest.raises(ConfigurationError, match="has the offsets from 0 up to 5, and retention"):
        dead.show("shop.dead[0]@99")
    with pytest.raises(ConfigurationError, match="has no partition 7"):
        dead.show("shop.dead[7]@0")
    with pytest.raises(ConfigurationError, match=r"is not in shop\.dead: name its own topic"):
        dead.show("other.dead[0]@0")
    finds = r"list --topic shop\.dead --origin 'orders\[0\]@1'` finds its letter"
    with pytest.raises(ConfigurationError, match=finds):
        DeadLetters(dead.log, topic="shop.dead").show("orders[0]@1")


@pytest.mark.parametrize("place", [b"nonsense", b"shop.dead[0]", b"shop.dead[0]@" + b"9" * 30, b""])
def test_a_letter_that_says_nonsense_about_what_it_is_a_copy_of_is_shown(sim, dead, place):
    headers = (("redrive-dead-reason", b"rejected"), ("redrive-replay-of", place))
    sim.send("shop.dead", "x", headers=headers)
    shown = dead.show("shop.dead[0]@5")
    assert (shown.value.text, shown.operations) == ("x", [])


def test_an_export_has_everything_whatever_the_bytes(sim, dead):
    sim.send("orders", b"bad \xff", key=b"\xfe", headers=(("h", b"\xfd"),))
    sim.app.handlers  # noqa: B018 -- as it was
    sim.run_until_empty()
    out = io.StringIO()
    dead.export(out, Filter())
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(rows) == 6
    assert {"value", "key", "group", "state", "error_message"} <= rows[0].keys()
    [odd] = [row for row in rows if "key_base64" in row]
    assert (odd["key_base64"], odd["value_base64"]) == ("/g==", "YmFkIP8=")


def test_stats(dead, sim):
    stats, _ = dead.stats()
    assert stats.letters == 5
    assert stats.states == {"open": 5}
    assert stats.reasons == {"exhausted": 3, "rejected": 2}
    assert stats.dialects == {"redrive": 5}
    assert sum(stats.hours.values()) == 5
    again = Stats.of(json.loads(json.dumps(stats.as_data())))
    assert again == stats
    again.merge([stats])
    assert again.letters == 10


def test_groups_are_bounded_however_many_letters_there_are():
    groups = Groups(Seen)
    for number in range(DEAD_GROUPS + 5):
        headers = (
            ("redrive-dead-reason", b"exhausted"),
            ("redrive-error-group", b"1%015x" % number),
            ("redrive-error-message", b"m"),
        )
        groups.add(Letter(letters.foreign("dead", *headers)), "open")
    assert len(groups) == DEAD_GROUPS + 1
    [others] = [each for each in groups.largest_first() if each.id == OTHERS]
    assert others.count == 5
    one = Group("1")
    for number in range(DEAD_PATTERNS + 3):
        name = ("redrive-origin-topic", b"t%d" % number)
        letter = Letter(letters.foreign("dead", ("redrive-dead-reason", b"x"), name))
        one.add(Seen(letter), "open")
    assert one.topics[OTHERS] == 3


def test_groups_counted_apart_are_the_groups_counted_together(dead):
    apart, together = Groups(Seen), dead.groups()[0]
    for _ in range(2):
        apart.merge([Group.of(json.loads(json.dumps(each.as_data()))) for each in together])
    assert [each.count for each in apart.largest_first()] == [2 * each.count for each in together]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.booleans()), max_size=200))
def test_marks_are_a_dictionary_in_twelve_bytes(given):
    marks, expected = Marks(), {}
    for number, (partition, offset, replayed) in enumerate(given):
        mark = Mark("replayed" if replayed else "discarded", (f"op{number % 5}",))
        marks.add(partition, offset, mark)
        expected[partition, offset] = mark
        if number % 17 == 0:
            assert marks.get(partition, offset) == mark
    assert len(marks) == len(expected)
    for partition in range(3):
        for offset in range(51):
            assert marks.get(partition, offset) == expected.get((partition, offset))


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0s"), (5_000, "5s"), (90_000, "90s"), (3_600_000, "60m"), (90_000_000, "25h")],
)
def test_ages_say_what_matters(milliseconds, said):
    from redrive.durations import milliseconds as parsed

    assert parsed(age(milliseconds)) == parsed(said)
