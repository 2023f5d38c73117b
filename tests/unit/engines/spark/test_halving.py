from __future__ import annotations

import pytest

from redrive.engines.spark.halving import Suspects
from redrive.engines.spark.ranges import Range


def planned(committed: dict[str, int], end: int) -> list[Range]:
    return [Range(topic, 0, at, end) for topic, at in committed.items() if at < end]


def search(bad: set[tuple[str, int]], committed: dict[str, int], end: int, proof: int = 1):
    """Run jobs that fail if a bad record is in them; gives what was found, and how many failed."""
    suspects, found, failures = Suspects(), [], 0
    for _ in range(5000):
        for part in suspects.share_out(planned(committed, end)):
            here = {one for each in part for one in bad if one[0] == each.topic}
            culprits = {
                one
                for one in here
                for each in part
                if each.start <= one[1] < each.end and one[0] == each.topic and one not in found
            }
            if not culprits:
                suspects.passed(part)
                committed.update({each.topic: each.end for each in part})
            else:
                failures += 1
                if suspects.blame(part, proof=proof):
                    found.append((part[0].topic, part[0].start))
                    committed[part[0].topic] = part[0].end
                    suspects.passed(part)
        if not planned(committed, end):
            return found, failures
    raise AssertionError("the search does not end")


def test_what_goes_well_runs_together():
    assert Suspects().share_out(planned({"a": 0, "b": 0}, 10)) == [planned({"a": 0, "b": 0}, 10)]


@pytest.mark.parametrize("offset", [0, 1, 499, 500, 998, 999])
def test_one_record_is_found_by_halves(offset):
    found, failures = search({("a", offset)}, {"a": 0, "b": 0, "c": 0}, 1000)
    assert found == [("a", offset)]
    assert failures <= 12


def test_several_records_are_found_and_nobody_else():
    bad = {("a", 3), ("a", 4), ("a", 700), ("b", 0)}
    found, _ = search(bad, {"a": 0, "b": 0}, 1000)
    assert set(found) == bad
    assert len(found) == len(bad)


def test_a_failure_of_more_than_one_record_finds_nobody():
    suspects = Suspects()
    assert not suspects.blame([Range("a", 0, 0, 2)])
    assert not suspects.blame([Range("a", 0, 0, 1), Range("b", 0, 0, 1)])
    assert suspects.blame([Range("a", 0, 0, 1)])


def test_behind_the_range_that_failed_nobody_is_suspected():
    suspects = Suspects()
    suspects.blame([Range("a", 0, 0, 8)])
    assert suspects.share_out([Range("a", 0, 0, 20)]) == [[Range("a", 0, 0, 4)]]
    suspects.passed([Range("a", 0, 0, 4)])
    suspects.passed([Range("a", 0, 4, 8)])
    assert suspects.share_out([Range("a", 0, 8, 900)]) == [[Range("a", 0, 8, 900)]]


def test_a_proof_may_take_a_second_job_with_that_record_alone():
    suspects = Suspects()
    assert not suspects.blame([Range("a", 0, 3, 4)], proof=2)
    assert suspects.share_out([Range("a", 0, 3, 9)]) == [[Range("a", 0, 3, 4)]]
    assert suspects.blame([Range("a", 0, 3, 4)], proof=2)
    found, failures = search({("a", 700)}, {"a": 0, "b": 0}, 1000, proof=2)
    assert found == [("a", 700)]
    assert failures <= 13


def test_a_failure_of_another_record_is_no_proof():
    suspects = Suspects()
    assert not suspects.blame([Range("a", 0, 3, 4)], proof=2)
    suspects.passed([Range("a", 0, 3, 4)])
    assert not suspects.blame([Range("a", 0, 4, 5)], proof=2)


def test_where_one_in_a_hundred_is_at_fault_each_costs_a_few_jobs():
    bad = {("a", offset) for offset in range(50, 10_000, 100)}
    found, failures = search(bad, {"a": 0}, 10_000)
    assert set(found) == bad
    assert failures <= 10 * len(bad)
