"""The table itself: what is expected, and how it is told."""

from __future__ import annotations

from redrive.prove.table import MOMENTS, ROWS, Cell, effects, markdown, told

EXPECTED = """
| delivery | no failure | after POST and INSERT | after produce | after database commit | consumer time-out |
|---|---|---|---|---|---|
| at-least-once | none | POST, INSERT | POST, INSERT, PRODUCE | n/a | POST, INSERT, PRODUCE |
| idempotent | none | POST | POST, PRODUCE | none | none |
| outbox | none | POST | n/a | POST, INSERT, PRODUCE | POST, INSERT, PRODUCE |
| idempotent+outbox | none | POST | n/a | none | none |
| transaction | none | POST | POST, INSERT | n/a | POST, INSERT |
| outbox, with the user's ids | none | POST | n/a | POST | POST |
| at-least-once, service honours keys | none | INSERT | INSERT, PRODUCE | n/a | INSERT, PRODUCE |
"""  # noqa: E501 -- a table


def test_the_table_reads_like_the_table() -> None:
    cells = [Cell(row, moment, row.expected[moment]) for row in ROWS for moment in MOMENTS]
    assert markdown(cells) == EXPECTED.strip()
    assert all(cell.agrees for cell in cells)


def test_a_cell_that_differs_says_what_was_expected() -> None:
    cell = Cell(ROWS[1], "after database commit", effects("POST, INSERT"), lost=("PRODUCE",))
    assert not cell.agrees
    assert "POST, INSERT (LOST: PRODUCE) (expected: none)" in markdown([cell])


def test_a_time_out_may_duplicate_less_where_the_table_names_the_reason() -> None:
    cell = Cell(ROWS[2], "consumer time-out", effects("POST"))
    assert cell.agrees
    assert "POST (better than: POST, INSERT, PRODUCE)" in markdown([cell])
    assert not Cell(ROWS[2], "after database commit", effects("POST")).agrees


def test_something_lost_is_never_as_expected() -> None:
    assert not Cell(ROWS[0], "no failure", (), lost=("POST",)).agrees


def test_effects_are_reported_in_the_tables_order() -> None:
    assert told(effects("PRODUCE, POST")) == "POST, PRODUCE"
    assert told(effects(None)) == "n/a"
    assert told(effects("")) == "none"
