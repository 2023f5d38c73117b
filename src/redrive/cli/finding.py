"""One line of `redrive doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "wrong", "not checked"]
""""wrong" would stop a run; a warning would not, but is worth knowing."""


@dataclass(frozen=True)
class Finding:
    """What was checked, what was found, and what to do if it is not right."""

    subject: str
    verdict: Verdict
    seen: str
    todo: str = ""
    is_configuration: bool = False
    """Whether it is about what was asked for, and not about the world."""


def ok(subject: str, seen: str) -> Finding:
    return Finding(subject, "ok", seen)


def warning(subject: str, seen: str, todo: str) -> Finding:
    return Finding(subject, "warning", seen, todo)


def wrong(subject: str, seen: str, todo: str) -> Finding:
    return Finding(subject, "wrong", seen, todo)


def misconfigured(subject: str, seen: str, todo: str) -> Finding:
    """Wrong, and to be corrected in the app or its settings: a run would end with exit code 2."""
    return Finding(subject, "wrong", seen, todo, is_configuration=True)


def not_checked(subject: str, why: str) -> Finding:
    return Finding(subject, "not checked", why)
