"""Ctrl-C while `redrive` still imports what it needs."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED = """
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from redrive.cli import main
main()
"""


def test_it_ends_without_a_stack_trace():
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "")
