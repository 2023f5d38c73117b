"""Relays that are killed ten times, at full length."""

from __future__ import annotations

import psycopg
import pytest
from relay_kills import Rivals, kill_relays
from relaying import Post

from redrive.ledger.migrating import migrate

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


def test_fifty_thousand_rows_of_a_thousand_keys_by_four_relays_and_ten_kills(
    redrive_stack, redrive_database, redrive_prefix, redrive_topic, tmp_path
):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
    post = Post(redrive_stack.bootstrap, redrive_database, redrive_prefix)
    rivals = Rivals(post, redrive_topic("out", partitions=12), tmp_path)
    try:
        repeated = kill_relays(rivals, 51_000, aggregates=1000, relays=4, kills=10)
    finally:
        rivals.end()
    print(f"{repeated} rows of 51,000 were published twice")
