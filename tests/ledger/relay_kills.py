"""Relays that are killed while writers write: what must hold however often, at any length."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import psycopg
from relaying import Post, Process, wait_for

from redrive.record import Write

_WATCH = """
    create table expected (number bigint, id text, key bytea);
    create function watch() returns trigger language plpgsql as
    $$ begin insert into expected values (new.number, new.id, new.key); return null; end $$;
    create trigger watch after insert on redrive.outbox for each row execute function watch();
"""
LOT = 100


class Rivals:
    """Several writers to the same keys, and several relays."""

    def __init__(self, post: Post, topic: str, folder: Path) -> None:
        self.post = post
        self.topic = topic
        self._folder = folder
        self.relays: list[Process] = []
        with psycopg.connect(post.database) as connection:
            connection.execute(_WATCH)

    def start_relay(self, *options: str) -> Process:
        folder = self._folder / f"relay-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        relay = Process(self.post, folder, *options)
        self.relays.append(relay)
        return relay

    def kill_one(self) -> None:
        """One of them, in the middle of whatever it does."""
        victim = self.relays.pop(random.randrange(len(self.relays)))
        assert victim.process.poll() is None, victim.output()
        victim.kill()

    def arrived(self) -> int:
        return self.post.count(self.topic)

    def wait_for_share(self, rows: int, share: float) -> None:
        wait_for(f"{share:.0%} of it", lambda: self.arrived() >= rows * share, 240)

    @contextmanager
    def writing(self, rows: int, aggregates: int, writers: int = 3) -> Iterator[None]:
        """Write so many rows within the block, some of them rolled back and written again."""
        share = rows // writers
        threads = [
            threading.Thread(target=self._write, args=(n, share, aggregates))
            for n in range(writers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join(240)
                assert not thread.is_alive()

    def _write(self, writer: int, rows: int, aggregates: int) -> None:
        chance = random.Random(writer)
        with psycopg.connect(self.post.database) as connection:
            for begin, fails in zip(range(0, rows, LOT), cycle([False] * 9 + [True])):
                sends = [
                    Write(self.topic, b"%d" % chance.randrange(aggregates), b"%d" % number)
                    for number in range(begin, min(begin + LOT, rows))
                ]
                if fails:
                    rolled_back = [Write(self.topic, one.key, b"rolled back") for one in sends]
                    self.post.insert(connection, *rolled_back)
                    connection.rollback()
                self.post.insert(connection, *sends)
                connection.commit()

    def check(self) -> int:
        """Everything once at least, in the order of commits, nothing else; gives repetitions."""
        wait_for("an empty outbox", lambda: self.post.waiting() == 0, 240)
        with psycopg.connect(self.post.database) as connection:
            found = connection.execute("select key, id from expected order by number").fetchall()
        expected = defaultdict(list)
        for key, row_id in found:
            expected[key].append(row_id.encode())
        first: dict[bytes, dict[bytes, None]] = defaultdict(dict)
        arrived = self.post.arrived(self.topic)
        for record in arrived:
            assert record.value != b"rolled back"
            first[record.key].setdefault(record.header("id"))
        assert {key: [*ids] for key, ids in first.items()} == expected
        return len(arrived) - len(found)

    def end(self) -> None:
        for relay in self.relays:
            relay.kill()


def kill_relays(rivals: Rivals, rows: int, *, aggregates: int, relays: int, kills: int) -> int:
    """Kill relays, spread over the whole run; gives how many rows were repeated."""
    for _ in range(relays):
        rivals.start_relay("--batch", "1000")
    with rivals.writing(rows, aggregates):
        for number in range(kills):
            rivals.wait_for_share(rows, 0.9 * (number + 1) / (kills + 1))
            rivals.kill_one()
            rivals.start_relay("--batch", "1000")
    repeated = rivals.check()
    assert repeated <= kills * 1000
    return repeated
