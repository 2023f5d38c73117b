"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import pytest

from redrive.errors import LocalError
from redrive.local.java import find_java, java_version


@pytest.fixture
def java(tmp_path):
    def make(name, answer):
        file = tmp_path / name / "bin" / "java"
        file.parent.mkdir(parents=True)
        file.write_text(f"#!/bin/sh\n{answer}\n")
        file.chmod(0o755)
        return file

    return make


def says(version):
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(
    ("version", "feature"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25)],
)
def test_versions(java, version, feature):
    assert java_version(java("jdk", says(version))) == feature


def test_what_is_no_java_has_no_version(java, tmp_path):
    assert java_version(java("stub", "exit 1")) is None
    assert java_version(tmp_path / "nowhere") is None


def test_java_home_comes_before_the_path(java, monkeypatch):
    chosen, other = java("home", says("21")), java("path", says("17"))
    monkeypatch.setenv("JAVA_HOME", str(chosen.parents[1]))
    monkeypatch.setenv("PATH", f"{other.parent}:/bin")
    assert find_java() == chosen


def test_an_old_java_home_does_not_hide_a_newer_java_on_the_path(java, monkeypatch):
    old, new = java("home", says("11.0.2")), java("path", says("17"))
    monkeypatch.setenv("JAVA_HOME", str(old.parents[1]))
    monkeypatch.setenv("PATH", f"{new.parent}:/bin")
    assert find_java() == new


def test_too_old_is_one_sentence(java, monkeypatch):
    old = java("path", says("11.0.2"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{old.parent}:/bin")
    with pytest.raises(LocalError, match=r"needs Java 17 or newer, but .* is 11: install Java 17"):
        find_java()


def test_none_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match="no java in JAVA_HOME or on the PATH: install Java 17"):
        find_java()
