"""Letters of five causes, of either engine: seen, tried, replayed once each and in order."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

from redrive.record import Write

CAUSES = ("bad", "missing", "wrong", "away", "garbled")
APP = """
    REPAIRED = Path(NOTES).with_name("repaired")
    app = App(NAME, retry=RetryPolicy("1s", bury_on=[ValueError]), concurrency=4)


    def broken(word):
        return word not in (REPAIRED.read_text() if REPAIRED.exists() else "")


    def decode(value):
        word, _, number = value.decode().partition(" ")
        if word == "garbled" and broken(word):
            raise UnicodeError(f"order {number} is garbled")
        return word, number


    @app.handler(topic("in"), decode=decode)
    def handle(record, ctx):
        word, number = record.data
        if broken(word):
            if word == "bad":
                raise Bury(f"order {number} is bad")
            if word == "missing":
                raise KeyError(number)
            if word == "wrong":
                raise ValueError(f"order {number} is wrong")
            raise OSError(f"host {number} is away")
        ctx.send(topic("out"), record.value, key=record.key)
"""


def dies_and_comes_back(world, start, redrive, count):
    target = world.app(APP)
    world.create(world.topic("out"), 2)
    values = [f"{CAUSES[n % 5]} {n}".encode() for n in range(count)]
    keys = {value: b"k%d" % (n // 5 % 20) for n, value in enumerate(values)}
    world.publisher.publish([Write(world.topic("in"), keys[value], value) for value in values])

    def ask(verb, *arguments, code=0):
        answer = redrive("dead", verb, target, *arguments, "--bootstrap", world.bootstrap, "--json")
        assert answer.exit_code == code, (answer.output, answer.exception)
        return json.loads(answer.stdout)

    def repair(*words):
        (world.folder / "repaired").write_text(" ".join(words))

    run = start(target)
    world.wait(run, "the burials", lambda: world.count("dead") >= count, timeout=900)
    run.stop()
    letters = world.records("dead")
    assert Counter(letter.value for letter in letters) == Counter(values)

    # Five causes; four of them are repaired, and `try` says so.
    groups = ask("groups")["groups"]
    assert [each["count"] for each in groups] == [count // 5] * 5
    assert ask("try", code=1)["total"] == {"fail": count}
    repair("bad", "missing", "away", "garbled")
    tried = ask("try", code=1)
    assert tried["total"] == {"pass": count * 4 // 5, "fail": count // 5}
    [failing] = [each for each in tried["groups"] if "fail" in each["verdicts"]]
    assert failing["error_type"] == "ValueError"

    # So a fifth of them dies again: the job stops by itself, and says how many.
    run = start(target)
    how = ("--ramp", "20", "--stop-above", "5%", "--yes")
    stopped = ask("replay", *how, code=1)
    assert (stopped["status"], stopped["counts"]) == ("stopped", {"sent": 20})
    failed = int(stopped["said"].split()[0])
    assert stopped["said"].startswith(f"{failed} of 20 failed again, more than 5%")
    world.wait(run, "those that die again", lambda: world.lag("retry.1s") == 0, timeout=300)
    again = ask("list", "--state", "failed-again")["letters"]
    assert len(again) == failed > 1
    assert {each["operation"] for each in again} == {stopped["id"]}
    redrive("dead", "jobs", target, "--cancel", stopped["id"], "--bootstrap", world.bootstrap)

    # All are repaired, and the rest is replayed.
    repair(*CAUSES)
    assert ask("try", "--state", "open", "--state", "failed-again")["total"] == {
        "pass": count - 20 + failed
    }
    done = ask("replay", "--ramp", "1,10,100", "--stop-above", "5%", "--yes")
    left_out = {"replayed-before": 20}
    assert (done["status"], done["counts"]) == ("done", {"sent": count - 20 + failed, **left_out})
    world.wait(run, "all of them", lambda: world.count("out") >= count, timeout=900)
    run.stop()
    assert Counter(world.values("out")) == Counter(values)
    stats = ask("stats")
    assert stats["states"] == {"replayed": count + failed}
    deaths = Counter(letter.value for letter in world.records("dead"))
    check_order(world, letters, {value for value, times in deaths.items() if times > 1})


def check_order(world, letters, died_again):
    """What is done of a key is in the order in which its letters were."""
    wanted, found = defaultdict(list), defaultdict(list)
    for order, records in ((wanted, letters), (found, world.records("out"))):
        for record in records:
            if record.value not in died_again:
                order[record.key].append(record.value)
    assert len(wanted) == 20
    odd = [key for key in wanted if found[key] != wanted[key]]
    assert not odd, "\n".join(where_it_differs(world, odd, wanted, found))


def where_it_differs(world, odd, wanted, found):
    """Where the records are that came in another order: was it the replay, or the run?"""
    places = defaultdict(list)
    for name in ("dead", "retry.1s", "out"):
        for record in world.records(name):
            at = f"{name}[{record.partition}]@{record.offset}, {record.timestamp}"
            places[record.value].append(at)
    for key in odd:
        pairs = zip(wanted[key], found[key], strict=True)
        first = next(number for number, pair in enumerate(pairs) if len({*pair}) > 1)
        yield f"{key}: {sum(a != b for a, b in zip(wanted[key], found[key], strict=True))} differ"
        for value in (*wanted[key][first : first + 3], *found[key][first : first + 3]):
            yield f"  {value}: {'; '.join(places[value])}"


@pytest.mark.timeout(900)
def test_letters_of_five_causes(world, start, redrive):
    dies_and_comes_back(world, start, redrive, 300)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_ten_thousand_letters_of_five_causes(world, start, redrive):
    dies_and_comes_back(world, start, redrive, 10_000)
