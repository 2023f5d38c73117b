"""One line of `redrive doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "wrong", "not checked"]
"""Wrong would stop a run; a warning would not, yet is worth knowing."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was seen, and what to do where it is not right."""

    subject: str
    verdict: Verdict
    seen: str
    todo: str = ""


def ok(subject: str, seen: str) -> Finding:
    return Finding(subject, "ok", seen)


def warning(subject: str, seen: str, todo: str) -> Finding:
    return Finding(subject, "warning", seen, todo)


def wrong(subject: str, seen: str, todo: str) -> Finding:
    return Finding(subject, "wrong", seen, todo)


def not_checked(subject: str, why: str) -> Finding:
    return Finding(subject, "not checked", why)
