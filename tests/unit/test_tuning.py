"""Numbers that can be tuned: in one place, each with what it does, and used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from redrive import tuning

SOURCE = Path(tuning.__file__).parent


def modules(*rooms):
    for room in rooms:
        for path in sorted((SOURCE / room).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def numbers():
    """Names and docstrings, as they stand in the module."""
    body = ast.parse(Path(tuning.__file__).read_text(encoding="utf-8")).body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            said = after.value.value if isinstance(after, ast.Expr) else ""
            yield statement.target.id, said


@pytest.mark.parametrize(("name", "said"), list(numbers()))
def test_a_number_says_what_it_is_and_what_another_would_do(name, said):
    assert said.index("Larger") > 0
    assert said.index("Smaller") > said.index("Larger")
    assert getattr(tuning, name) > 0


def test_each_number_is_used():
    used = {
        alias.name
        for _, tree in modules(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "redrive.tuning"
        for alias in node.names
    }
    assert used == {name for name, _ in numbers()}


def own_numbers(*rooms):
    """Names that stand for a number, as `module NAME`."""
    for name, tree in modules(*rooms):
        for statement in tree.body:
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            inner = [*ast.walk(statement.value)]
            if any(isinstance(each, ast.Constant) for each in inner) and all(
                type(each.value) in {int, float}
                if isinstance(each, ast.Constant)
                else isinstance(each, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
                for each in inner
            ):
                target = statement.targets[0] if hasattr(statement, "targets") else statement.target
                yield f"{name} {target.id}"


PRESCRIBED = {
    "dead/copies.py": "_MOST",  # a count in a header
    "dead/masking.py": "_SHORT",  # what masking means
    "dead/showing.py": "_HEX_ROW",
    "dead/states.py": "_REMOVED",  # as it is stored
    "dead/stats.py": "HOUR",
    "delivery/claims.py": "_FINGERPRINT_BYTES _LONGEST_ID _MOST_ATTEMPTS",  # columns of the inbox
    "engines/ahead.py": "_LONGEST",  # as good as forever
    "engines/database.py": "_DAY",
    "engines/spark/frames/due.py": "_APPEND_TIME _DIGITS",
    "engines/spark/frames/intake.py": "EARLIEST LATEST _WITHIN_PARTITION",  # Python's and Spark's
    "engines/spark/halving.py": "PROOF",  # a promise
    "engines/spark/lost_tasks.py": "_ALL _LONGEST",
    "engines/spark/slots.py": "_LEAST _NO_LIMIT",
    "engines/spark/spark_session.py": "_FAILURES",  # Spark's default
    "engines/spark/task.py": "_OUT_OF_MEMORY",  # an exit code
    "engines/weights.py": "RECORD",  # measured
    "engines/worker/options.py": "_POLL_INTERVAL_DEFAULT",  # librdkafka's
    "engines/worker/rejoining.py": "_UNFAIR",  # follows from how assignors work
    "kafka/config.py": "_LARGEST_MESSAGE",
    "kafka/errors.py": "METADATA_BYTES",
    "kafka/groups.py": "_UUID",
    "kafka/handover.py": "_ANY_PARTITION",
    "kafka/headers.py": "_NAME_AND_VALUE",
    "kafka/topic_admin.py": "_AS_THE_BROKER_DOES",
    "ledger/admission.py": "DEFAULT_LIMIT _FRAME _PER_HEADER",  # of Kafka's format
    "ledger/lease.py": "_UNSIGNED",
    "ledger/names.py": "BUCKETS SHARDS",  # all processes have to agree on them
    "processing/calls/context.py": "_MOST_SHOWN",
    "processing/calls/sending.py": "_LAST_PARTITION",
    "processing/outcomes/verdicts.py": "_MINUTE",
    "processing/progress/done_beyond.py": "METADATA_LIMIT _ONE_BYTE _PART",  # of its format
    "processing/progress/notes.py": "ROOM",  # likewise
}
"""What formats, protocols and other programs prescribe, units, and parts of promises and of
sentences: whoever adds one here has asked whether somebody might want another."""


def test_no_module_has_numbers_of_its_own_that_somebody_might_tune():
    rooms = ("processing", "delivery", "engines", "kafka", "ledger", "dead", "rewind")
    allowed = {f"{name} {each}" for name, own in PRESCRIBED.items() for each in own.split()}
    assert set(own_numbers(*rooms)) == allowed
