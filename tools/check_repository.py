"""Checks what no linter knows: what must not be written down in this repository.

- Addresses. Where packages and jars come from is each machine's own setting; documentation may
  point to a few well-known places.
- Paths of somebody's machine.
- An ignored lint or type error without its reason beside it (`-- why`).
- A lock file of uv's own format: `requirements.lock` is the only one, pip can read it too.
- Private names of redrive in tests, benchmarks and examples, where the linter does not see them: as
  they are imported, or as text for `setattr` and the like.

Long Python files are named as something to look at, without failing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ALLOWED_HOSTS = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]|www\.apache\.org|www\.w3\.org|github\.com"
    r"|(?:[\w-]+\.)*example(?:\.\w+)?"
)
ADDRESS = re.compile(r"\bhttps?://(?P<host>\[[0-9a-f:]*\]|[\w.-]+)", re.IGNORECASE)
# Host names of package registries, with or without a scheme before them.
REGISTRY = re.compile(
    r"\b(?:pypi|pythonhosted|maven|sonatype|jfrog|conda|npmjs|docker|quay|jitpack|gcr|ghcr)"
    r"(?:\.[\w-]+)*\.(?:org|com|net|io|cloud)\b",
    re.IGNORECASE,
)
HOME = re.compile(r"(?<![\w.$}~/-])/(?:(?:home|Users)/\w+|root(?![\w.-]))")
NOQA = re.compile(r"#\s*(?:ruff:\s*)?noqa\b(?P<rest>.*)", re.IGNORECASE)
TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore\b(?P<rest>.*)")
REASON = re.compile(r"(?:--|\N{EM DASH}|\N{EN DASH})\s*\w")
LONG_FILE = 400

OUTSIDE = ("tests", "bench", "examples")
"""Folders of code that uses redrive as others do."""
INSIDE = ("tests", "simulation")
"""Except this one: it puts itself in the place of what modules use."""
PRIVATE = re.compile(r"(?:redrive(?:\.\w+)*\.)?_[A-Za-z]\w*")
ACCESS = ("delattr", "getattr", "hasattr", "object", "setattr")
"""Python's, pytest's and mock's functions that are given a name as text."""


def problems_in(path: Path, text: str) -> Iterator[str]:
    """Each problem of one file, with its place."""
    if path.name == "uv.lock":
        yield f"{path}: the lock file is requirements.lock (make lock); remove this one"
    for number, line in enumerate(text.splitlines(), start=1):
        for problem in _problems_in_line(line, python=path.suffix == ".py"):
            yield f"{path}:{number}: {problem}"
    if path.suffix == ".py" and path.parts[0] in OUTSIDE and path.parts[:2] != INSIDE:
        for number, name in _private_names(text):
            yield f"{path}:{number}: private name {name!r}; use what redrive shows to all"


def _private_names(text: str) -> Iterator[tuple[int, str]]:
    """Private names in imports and in texts that name something, with their lines."""
    for node in ast.walk(ast.parse(text)):
        names: list[object] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "redrive":
            names = [each.name for each in node.names]
        elif isinstance(node, ast.Call) and _last_name(node.func) in ACCESS:
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
        for name in names:
            if isinstance(name, str) and PRIVATE.fullmatch(name):
                yield getattr(node, "lineno", 0), name


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _problems_in_line(line: str, *, python: bool) -> Iterator[str]:
    for address in ADDRESS.finditer(line):
        if not ALLOWED_HOSTS.fullmatch(address["host"].rstrip(".").lower()):
            yield f"address of {address['host']!r}; only well-known places may be named"
    if registry := REGISTRY.search(line):
        yield f"host of a package registry, {registry[0]!r}; that is each machine's own setting"
    if home := HOME.search(line):
        yield f"path of somebody's machine, {home[0]!r}"
    if python:
        for pattern, what in ((NOQA, "noqa"), (TYPE_IGNORE, "type: ignore")):
            comment = pattern.search(line)
            if comment and not REASON.search(comment["rest"]):
                yield f"{what} without its reason beside it; add `-- why`"


def _files(root: Path) -> list[Path]:
    """What is tracked or about to be; the whole tree where git does not answer."""
    git = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if git.returncode == 0:
        return [Path(name) for name in sorted(git.stdout.decode().split("\0")) if name]
    found = (path.relative_to(root) for path in sorted(root.rglob("*")))
    return [path for path in found if not any(part.startswith(".") for part in path.parts)]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return None  # binary, deleted but not yet committed, or a folder


def main(root: Path) -> int:
    """Print every problem; 1 if there is any."""
    texts = {path: text for path in _files(root) if (text := _text(root / path)) is not None}
    for path, text in texts.items():
        if path.suffix == ".py" and (lines := text.count("\n")) > LONG_FILE:
            print(f"note: {path} has {lines} lines; is it one thing?")
    problems = [problem for path, text in texts.items() for problem in problems_in(path, text)]
    print("\n".join(problems) or f"{len(texts)} files: nothing that must not be here.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
