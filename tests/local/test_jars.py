"""What counts as a complete set of jars, and how an interrupted fetch goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redrive.errors import LocalError
from redrive.local import jars
from redrive.local.ivy import RetrieveError
from redrive.local.jars import JarSet


class FakeIvy:
    """Brings two jars; before that it fails as often, and in the way, it is told to."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.runs = 0
        self.content = b"one"

    def __call__(self, configuration: str, target: Path) -> None:
        self.runs += 1
        (target / "first.jar").write_bytes(self.content)
        if self.failures:
            raise self.failures.pop(0)
        (target / "second.jar").write_bytes(b"second")


@pytest.fixture
def coordinates(tmp_path):
    file = tmp_path / "jars.xml"
    file.write_text("<coordinates/>")
    return file


@pytest.fixture
def fetch(tmp_path, coordinates, monkeypatch):
    monkeypatch.delenv("REDRIVE_JARS", raising=False)

    def run(ivy, **options):
        return jars.fetch(
            "kafka",
            tmp_path,
            coordinates=coordinates,
            retrieve=ivy,
            pause=lambda seconds: None,
            **options,
        )

    return run


@pytest.fixture
def kafka(tmp_path, coordinates):
    return JarSet("kafka", tmp_path / "jars" / "kafka", coordinates)


def names(files):
    return [file.name for file in files]


def test_a_second_fetch_does_not_ask_ivy(fetch, kafka):
    ivy = FakeIvy()
    assert names(fetch(ivy)) == names(fetch(ivy)) == ["first.jar", "second.jar"]
    assert ivy.runs == 1
    assert kafka.problems() == []


def test_a_failed_look_up_is_tried_again(fetch):
    ivy = FakeIvy(RetrieveError("no answer"), RetrieveError("no answer"))
    assert names(fetch(ivy)) == ["first.jar", "second.jar"]
    assert ivy.runs == 3


def test_attempts_are_bounded_and_the_error_says_what_to_do(fetch, kafka):
    ivy = FakeIvy(*[RetrieveError("no answer")] * 9)
    with pytest.raises(LocalError, match=r"in 4 attempts \(no answer\); check the network"):
        fetch(ivy, attempts=4)
    assert ivy.runs == 4
    assert not kafka.complete()


def test_a_killed_fetch_leaves_nothing_that_counts(fetch, kafka):
    with pytest.raises(KeyboardInterrupt):
        fetch(FakeIvy(KeyboardInterrupt()))
    assert not kafka.complete()
    assert names(fetch(FakeIvy())) == ["first.jar", "second.jar"]


def test_a_changed_list_of_coordinates_is_fetched_again(fetch, kafka, coordinates):
    fetch(FakeIvy())
    coordinates.write_text("<other/>")
    assert not kafka.complete()
    assert kafka.problems() == [
        "the kafka jars are not downloaded yet, or are out of date",
    ]
    ivy = FakeIvy()
    ivy.content = b"newer"
    fetch(ivy)
    assert (kafka.folder / "first.jar").read_bytes() == b"newer"


def test_an_old_set_survives_a_fetch_that_fails(fetch, kafka, coordinates):
    fetch(FakeIvy())
    coordinates.write_text("<other/>")
    with pytest.raises(LocalError):
        fetch(FakeIvy(RetrieveError("no answer")), attempts=1)
    assert (kafka.folder / "first.jar").exists()


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_a_damaged_set_is_fetched_again(fetch, kafka, damage):
    first = fetch(FakeIvy())[0]
    first.unlink() if damage == "missing" else first.write_bytes(b"o")
    assert not kafka.complete()
    ivy = FakeIvy()
    fetch(ivy)
    assert ivy.runs == 1
    assert kafka.complete()


def test_doctor_sees_a_change_that_keeps_the_size(fetch, kafka):
    fetch(FakeIvy())[0].write_bytes(b"eno")
    assert kafka.complete()
    assert kafka.problems() == ["first.jar is missing or damaged"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"coordinates": 1}', '{"files": {}}'])
def test_a_broken_manifest_is_no_manifest(fetch, kafka, content):
    fetch(FakeIvy())
    (kafka.folder / jars.MANIFEST).write_text(content)
    assert not kafka.complete()


def test_a_manifest_without_files_is_not_complete(fetch, kafka):
    fetch(FakeIvy())
    manifest = json.loads((kafka.folder / jars.MANIFEST).read_text())
    (kafka.folder / jars.MANIFEST).write_text(json.dumps(manifest | {"files": {}}))
    assert not kafka.complete()


def test_the_jars_of_this_machine_are_whole(jar_cache):
    kafka = jars.jar_set("kafka")
    assert kafka.complete()
    assert kafka.problems() == []
    assert any(jar.name.startswith("kafka_2.13-") for jar in kafka.files())


def test_no_address_is_written_down():
    assert "://" not in jars.COORDINATES.read_text()
