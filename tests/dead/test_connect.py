"""The dead letters that a real Kafka Connect writes: seen, mended, and taken by it at last."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from cdc.standalone import Standalone
from shops import Commands

from redrive.config import load_settings
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.local.waiting import wait_until
from redrive.record import TopicPartition, Write

FIX = """
import json

def quoted(record):
    number = record.value.decode().removeprefix("number ")
    return {"n": int(number)}
"""
BROKEN_KEY = b"{no key"


class Sink(Standalone):
    """Writes a topic's JSON to a file, and what it cannot read to a dead topic."""

    def __init__(self, bootstrap: str, folder: Path, topic: str, dead: str) -> None:
        self.file = folder / "sink.txt"
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        worker = {
            "bootstrap.servers": bootstrap,
            "key.converter": json_converter,
            "key.converter.schemas.enable": "false",
            "value.converter": json_converter,
            "value.converter.schemas.enable": "false",
        }
        connector = {
            "name": f"{topic}-file",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": topic,
            "file": str(self.file),
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": dead,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        super().__init__("connect", folder, worker, connector)

    def wait_for(self, count: int) -> list[int]:
        """The numbers that it has written, as soon as there are so many."""
        assert wait_until(lambda: len(self.numbers()) >= count, 120), f"only {self.numbers()}"
        return self.numbers()

    def numbers(self) -> list[int]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [int(line.removeprefix("{n=").removesuffix("}")) for line in lines]


@pytest.mark.timeout(900)
def test_letters_of_kafka_connect_are_mended_and_taken_by_it(
    redrive_stack, redrive_topic, tmp_path
):
    topic, bootstrap = redrive_topic("orders", partitions=3), redrive_stack.bootstrap
    dead = f"{topic}.connect-dead"
    settings = load_settings({"bootstrap": bootstrap}, environ={})
    log, publisher = KafkaLog(settings, topic), KafkaPublisher(settings)
    commands = Commands(bootstrap, tmp_path)
    (tmp_path / "mending.py").write_text(FIX)
    keys = {number: b'"k%d"' % (number % 7) for number in range(60)}
    values = {
        number: b"number %d" % number if number % 3 else b'{"n":%d}' % number for number in keys
    }
    good = [number for number in keys if number % 3 == 0]
    writes = [Write(topic, keys[n], values[n], (("trace", b"t%d" % n),)) for n in keys]
    publisher.publish([*writes, Write(topic, BROKEN_KEY, b'{"n":99}')])

    def counted() -> int:
        return log.bounds(TopicPartition(dead, 0))[1] if log.partitions(dead) else 0

    def ask(verb: str, *arguments: str) -> dict:
        return json.loads(commands.run("dead", verb, "--topic", dead, *arguments, "--json"))

    with Sink(bootstrap, tmp_path, topic, dead) as sink:
        assert sorted(sink.wait_for(len(good))) == good
        assert wait_until(lambda: counted() == 41, 120), counted()
        before = log.read(TopicPartition(dead, 0), 0, 41)

        # What failed, in Connect's own words.
        found = ask("groups")
        assert (found["scan"]["complete"], found["scan"]["scanned"]) == (True, 41)
        by_stage = {each["reason"]: each for each in found["groups"]}
        assert {stage: each["count"] for stage, each in by_stage.items()} == {
            "VALUE_CONVERTER": 40,
            "KEY_CONVERTER": 1,
        }
        assert by_stage["VALUE_CONVERTER"]["topics"] == {topic: 40}
        assert by_stage["VALUE_CONVERTER"]["error_type"].endswith(".errors.DataException")
        [listed] = ask("list", "--dead-reason", "KEY_CONVERTER")["letters"]
        assert (listed["dialect"], listed["app"]) == ("connect", f"{topic}-file")
        shown = ask("show", "--at", f"{dead}[0]@0")
        assert shown["headers"] == [{"name": "trace", "value": f"t{number_in(shown['value'])}"}]
        assert "JsonConverter" in shown["error_trace"]

        # Nothing is written without --to, nor by a dry run.
        how = ("--fix", "mending:quoted", "--dead-reason", "VALUE_CONVERTER")
        assert ask("replay", *how)["left_out"] == {"not-allowed": 40}
        plan = ask("replay", *how, "--to", topic)
        assert (plan["letters"], plan["changed"], plan["targets"]) == (40, 40, {topic: 40})
        assert not log.partitions(f"{dead}.state")

        done = ask("replay", *how, "--to", topic, "--yes")
        assert (done["status"], done["counts"]) == ("done", {"sent": 40})
        taken = sink.wait_for(60)
        assert sorted(taken) == [*range(60)]
        check_order(log, topic)

        # One that nobody has mended dies again, and says so.
        ask("replay", "--dead-reason", "KEY_CONVERTER", "--to", topic, "--yes")
        assert wait_until(lambda: counted() == 42, 120), counted()
    assert ask("stats")["states"] == {"replayed": 41, "failed-again": 1}
    assert log.read(TopicPartition(dead, 0), 0, 41) == before
    log.close()
    publisher.close()


def number_in(value: str) -> int:
    return int(value.removeprefix("number "))


def check_order(log: KafkaLog, topic: str) -> None:
    """Copies of one key are where it was, in its order."""
    last: dict[bytes, int] = defaultdict(lambda: -1)
    for partition in range(3):
        place = TopicPartition(topic, partition)
        for record in log.read(place, *log.bounds(place)):
            headers = dict(record.headers)
            if "redrive-replay-of" not in headers:
                continue
            assert not [name for name in headers if name.startswith("__connect")]
            number = json.loads(record.value)["n"]
            assert headers["trace"] == b"t%d" % number
            assert last[record.key] < number
            last[record.key] = number
    assert len(last) == 7
