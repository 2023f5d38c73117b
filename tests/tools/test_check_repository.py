"""What must not be written down in the repository, and what may."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_repository.py"

# Put together here, so that this file passes the check that it tests.
SCHEME = "https" + "://"
REFUSED = {
    "an address": (f"see {SCHEME}somewhere.net/x", "address of 'somewhere.net'"),
    "a lookalike": (f"{SCHEME}github.com.evil.net", "address of 'github.com.evil.net'"),
    "a registry without scheme": ("from files.python" + "hosted.org", "package registry"),
    "a home": ("cd /" + "home/ann/redrive", "path of somebody's machine"),
    "root's home": ("cat /" + "root/.cache", "path of somebody's machine"),
    "a bare noqa": ("x = 1  # no" + "qa: E501", "noqa without its reason"),
    "a bare type ignore": ("x = 1  # type: " + "ignore[assignment]", "type: ignore without"),
}
ALLOWED = {
    "this machine": f"{SCHEME}localhost:8080/ {SCHEME}127.0.0.1:9092",
    "well-known places": f"{SCHEME}github.com/a/b {SCHEME}www.apache.org/licenses/",
    "made-up hosts": f"{SCHEME}kafka.example.com {SCHEME}example.org {SCHEME}api.example/",
    "a relative home": "~/.cache/redrive, $HOME/x and tests/home/ann",
    "jars by their coordinates": "org.apache.kafka:kafka_2.13:4.3.1",
    "noqa with its reason": "x = 1  # no" + "qa: E501 -- one table row",
    "type ignore with its reason": "x = 1  # type: " + "ignore[assignment]  # -- untyped library",
}


PRIVATE = {
    "imported": "from redrive.kafka.log import _Reader",
    "replaced": "patch.setattr(worker, '_run', None)",
    "replaced by its path": "patch.setattr('redrive.topics._of', None)",
    "read": "getattr(worker, '_run')",
}


def check(root: Path, name: str, text: str) -> tuple[int, str]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text + "\n", "utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    ended = subprocess.run(
        [sys.executable, str(TOOL), str(root)], capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path: Path, text: str, problem: str) -> None:
    code, output = check(tmp_path, "module.py", text)

    assert code == 1
    assert output.startswith("module.py:1: ")
    assert problem in output


def test_allowed(tmp_path: Path) -> None:
    code, output = check(tmp_path, "module.py", "\n".join(ALLOWED.values()))

    assert (code, output) == (0, "1 files: nothing that must not be here.\n")


@pytest.mark.parametrize("text", PRIVATE.values(), ids=PRIVATE)
def test_private_names_are_for_redrive_itself(tmp_path: Path, text: str) -> None:
    code, output = check(tmp_path, "tests/unit/test_topics.py", text)

    assert code == 1
    assert output.startswith("tests/unit/test_topics.py:1: private name ")


@pytest.mark.parametrize("name", ["src/redrive/topics.py", "tests/simulation/patching.py"])
def test_so_they_are_for_the_simulation_which_stands_in_for_modules(
    tmp_path: Path, name: str
) -> None:
    assert check(tmp_path, name, "\n".join(PRIVATE.values()))[0] == 0


def test_names_of_pythons_own_kind_are_anybodys(tmp_path: Path) -> None:
    text = "from redrive.topics import apply\npatch.setattr(Admin.__init__, '__kwdefaults__', {})"

    assert check(tmp_path, "tests/test_admin.py", text)[0] == 0


def test_another_lock_file_is_refused(tmp_path: Path) -> None:
    code, output = check(tmp_path, "uv.lock", "")

    assert code == 1
    assert "requirements.lock" in output


def test_a_long_file_is_only_noted(tmp_path: Path) -> None:
    code, output = check(tmp_path, "long.py", "\n" * 500)

    assert code == 0
    assert "note: long.py has 501 lines" in output


def test_binary_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")

    assert check(tmp_path, "module.py", "")[0] == 0
