"""Shop: an app with dead letters on a real Kafka, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from redrive.config import load_settings
from redrive.dead import open_letters, open_operator
from redrive.envelope import Envelope
from redrive.fingerprint import Fingerprint
from redrive.kafka.errors import NoLeaderError
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.loading import load_app
from redrive.local.waiting import wait_until
from redrive.record import TopicPartition, Write
from redrive.topics import all_topic_names, apply, plan_topics

MODULE = """
import time
from pathlib import Path
from redrive import App, RetryPolicy, Bury

retry = RetryPolicy("{retry}", redeliver="{redeliver}")
app = App("{name}", delivery="{delivery}", retry=retry{more})

@app.handler("{name}.orders")
def handle(record, ctx):
    word, _, rest = record.value.decode().partition(" ")
    if word == "bad" and not Path("repaired").exists():
        raise Bury(f"order {{rest}} is bad")
    if word == "missing" and not Path("repaired").exists():
        raise KeyError(rest)
    if word == "never":
        raise ValueError(rest)
    ctx.send("{name}.done", record.value, key=record.key)

def fix(record):
    return record.value.replace(b"never", b"now")

def slowly(record):
    time.sleep(0.002)
    return record.value
"""


def letters_of(app, values, keys=10, said=None, first=0):
    """Dead letters of an app with one handler, as redrive writes them; `first`: its offset."""
    (origin,) = app.handlers
    for number, value in enumerate(values, first):
        error = "KeyError" if value.startswith("missing") else "redrive.signals.Bury"
        envelope = Envelope(
            app=app.name,
            id=f"id{number}",
            origin_topic=origin,
            origin_partition=number % 3,
            origin_offset=number,
            first_received=1,
            attempt=2,
            error_type=error,
            error_message=f"order {number}" if said is None else said,
            error_group=Fingerprint("exhausted", error).id,
            dead_reason="exhausted",
        )
        key = b"k%d" % (number % keys)
        yield Write(app.dead_topic, key, value.encode(), envelope.headers(()))


class Commands:
    """`redrive` in processes of its own, which end with the test."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self._processes: list[subprocess.Popen] = []

    def start(self, *arguments):
        """A command in a process of its own."""
        command = [sys.executable, "-m", "redrive", *arguments, "--bootstrap", self.bootstrap]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, cwd=self.folder, env=dict(os.environ), **quiet)
        self._processes.append(process)
        return process

    def run(self, *arguments, code=0, timeout=240):
        """A command that ends by itself; gives what it prints: with --json, that alone."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == code, (out.decode(), err.decode())
        return out.decode() + ("" if "--json" in arguments else err.decode())

    def close(self):
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Shop(Commands):
    """An app, its topics, and its letters."""

    def __init__(
        self,
        stack,
        name,
        folder: Path,
        *,
        delivery="at-least-once",
        retry="1s",
        redeliver="handler",
        more="",
        partitions=3,
    ):
        super().__init__(stack.bootstrap, folder)
        self.name = name
        module = f"shop_{name.replace('-', '_')}"
        choices = {"delivery": delivery, "retry": retry, "redeliver": redeliver, "more": more}
        text = MODULE.format(name=name, **choices)
        (folder / f"{module}.py").write_text(text)
        self.target = f"{module}:app"
        self.fix = f"{module}:fix"
        self.slowly = f"{module}:slowly"
        """A fix that changes nothing, and takes its time: there is a middle to be killed in."""
        self.settings = load_settings({"bootstrap": stack.bootstrap}, environ={})
        self.app = load_app(self.target, folder)
        self.log = KafkaLog(self.settings, name)
        self.publisher = KafkaPublisher(self.settings)
        topics = KafkaTopics(self.settings)
        topics.create(f"{name}.orders", partitions, {})
        topics.create(f"{name}.done", partitions, {})
        plan = plan_topics(self.app, topics.describe(all_topic_names(self.app)))
        assert not [error for _, error in apply(plan, topics) if error is not None]

    @property
    def letters(self):
        return open_letters(self.app, self.settings)

    def operator(self, by="alice"):
        return open_operator(self.letters, self.settings, by)

    def bury(self, values, keys=10, said=None, first=0):
        """Write dead letters as redrive does, without an engine: quicker than to let them die."""
        self.publisher.publish([*letters_of(self.app, values, keys, said, first)])

    def read(self, topic):
        found = []
        for number in range(self.log.partitions(topic)):
            place = TopicPartition(topic, number)
            found += self.log.read(place, *self.log.bounds(place))
        return found

    def copies(self):
        """How often each letter was replayed."""
        (delay,) = self.app.delay_topics
        found = [dict(record.headers).get("redrive-replay-of") for record in self.read(delay)]
        return Counter(name.decode() for name in found if name is not None)

    def jobs(self):
        return json.loads(self.run("dead", "jobs", self.target, "--json"))["operations"]

    def wait_for_copies(self, count, seconds=120):
        (delay,) = self.app.delay_topics
        places = [TopicPartition(delay, n) for n in range(self.log.partitions(delay))]
        looked_at = -1

        def there():
            nonlocal looked_at
            try:
                end = sum(end for _, end in self.log.all_bounds(places).values())
            except NoLeaderError:  # a broker that is starved for a while is not what is tested
                return False
            # Offsets are also those of a transaction's end, and of one that was aborted.
            if end < count or end == looked_at:
                return False
            looked_at = end
            return self.copies().total() >= count

        assert wait_until(there, seconds), f"not even {count} copies"

    def close(self):
        super().close()
        self.log.close()
        self.publisher.close()
