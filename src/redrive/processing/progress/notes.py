"""Notes: what stands beside a committed offset, as words in the commit's metadata.

A word is a name, a colon and its text. Whoever looks for one leaves the others alone, because
engines and versions know different ones. What is complete beyond the offset (`r1:`, see
`done_beyond.py`) is always the last word: versions that know no other ignore all text that does not
begin with it, and run those records again.
"""

from __future__ import annotations

from typing import Final

from redrive.ports import Position
from redrive.processing.progress.done_beyond import PREFIX

TOPIC: Final = "t1"
"""The id of the topic: one that was deleted and recreated has another."""
RUN: Final = "s1"
"""The run on Spark that committed the offset."""
BEGUN: Final = "b1"
"""The task that was about to run the record at the offset, alone, on Spark."""
CLAIM: Final = "c1"
"""Of a source partition in strict order, on Spark: by which plan it is handled now."""
MOVED: Final = "m1"
"""The new name of the app, which has taken this progress over."""
ROOM: Final = 200
"""Bytes that are left for notes beside what is complete beyond the offset."""


def noted(position: Position, name: str) -> str:
    """The text of a note; empty, if there is none."""
    start = f"{name}:"
    for word in position.metadata.split(" "):
        if word.startswith(start):
            return word[len(start) :]
    return ""


def with_note(position: Position, name: str, text: str) -> Position:
    """The position with this note, instead of another of its name; without it, if it is empty."""
    start = f"{name}:"
    others = [each for each in position.metadata.split(" ") if each and not each.startswith(start)]
    return position._replace(metadata=" ".join([start + text, *others] if text else others))


def without_notes(position: Position) -> Position:
    """The position with what is complete beyond it, and nothing else."""
    last = position.metadata.rpartition(" ")[2]
    return position._replace(metadata=last if last.startswith(PREFIX) else "")
