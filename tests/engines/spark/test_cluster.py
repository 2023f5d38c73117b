"""On a standalone cluster, with redrive shipped by --py-files, and executors killed."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from cluster import cluster_in, packed, submitted
from running import World

from redrive.ledger.migrating import migrate
from redrive.record import Write

APP = """
    import signal

    import redrive

    KILLS = {kills}

    app = App(NAME, delivery="transaction", ordering="partition")

    @app.handler(topic("in"))
    def copy(record, ctx):
        if record.offset % 20 == 0:
            time.sleep(0.02)
        where = redrive.__file__.encode()
        ctx.send(topic("out"), record.value, partition=record.partition, headers={{"from": where}})

    @app.handler(topic("heavy"))
    def take_the_executor_down(record, ctx):
        # As a container's limit of memory does: all of its processes are ended.
        note(began=record.value.decode())
        times = Path(NOTES).read_text().count("began")
        if times <= KILLS:
            # Both ways to end a container: at once, and by asking all of its processes to end.
            os.kill(executor(), signal.SIGKILL if times % 2 else signal.SIGTERM)
            if times % 2 == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        copy(record, ctx)

    with_a_database = App(NAME + "-db", delivery="idempotent")

    @with_a_database.handler(topic("numbers"), id=redrive.field("number"), decode=json.loads)
    def insert(record, ctx):
        ctx.db.execute("insert into number values (%s)", [record.data["number"]])

    def executor():
        pid = os.getpid()
        while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{{pid}}/cmdline").read_bytes():
            pid = int(Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
        return pid
"""
PROGRAM = """
    import sys

    from pyspark.sql import SparkSession

    import redrive.spark

    spark = SparkSession.builder.appName("a user's own program").getOrCreate()
    for target in sys.argv[1:]:
        handle = redrive.spark.start(spark, target, until="empty", max_records_per_batch=2000)
        handle.await_termination()
        print("done:", handle.figures.total("done"))
    spark.stop()
"""


# With six kills, there are more than deaths of a Python worker with one record alone would bury it.
@pytest.mark.parametrize(("records", "kills"), [(400, 1), (4000, 6)], ids=["once", "six times"])
def test_executors_killed_on_a_cluster_lose_nothing_double_nothing_and_bury_nobody(
    world: World, tmp_path: Path, redrive_database: str, records: int, kills: int
) -> None:
    target = world.app(APP.format(kills=kills), 4)
    second = target.replace(":app", ":with_a_database")
    world.create(world.topic("numbers"), 2)
    world.create_own(world.loaded(second))
    world.send("numbers", *(b'{"number": %d}' % (number % 100) for number in range(200)))
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        connection.execute("create table number (number integer)")
    world.create(world.topic("out"), 4)
    values = [b"%d" % number for number in range(records)]
    world.publisher.publish(
        [
            Write(world.topic("heavy"), None, b"heavy", (), 0),
            *(Write(world.topic("in"), None, value, (), n % 4) for n, value in enumerate(values)),
        ]
    )
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    module = tmp_path / f"{target.partition(':')[0]}.py"
    shipped = [packed(tmp_path), module]
    settings = {"REDRIVE_BOOTSTRAP": world.bootstrap, "REDRIVE_DATABASE": redrive_database}
    with (
        cluster_in(tmp_path) as cluster,
        submitted(cluster, tmp_path, program, shipped, target, second, settings=settings) as run,
    ):
        assert run.wait(280) == 0, _told(tmp_path)
    assert world.values("dead") == []
    assert len(world.notes()) == kills + 1
    found = Counter(world.values("out"))
    assert (len(found), max(found.values())) == (records + 1, 1)
    with psycopg.connect(redrive_database) as connection:
        rows = connection.execute("select number from number order by number").fetchall()
    assert rows == [(number,) for number in range(100)]
    origins = {record.header("from") for record in world.records("out")}
    assert all(b"redrive.zip" in (origin or b"") for origin in origins), origins


def _told(folder: Path) -> str:
    logs = {log.name: log.read_text(errors="replace")[-2500:] for log in folder.glob("*.log")}
    return json.dumps(logs, indent=1).replace("\\n", "\n")
