"""What the console costs: a cluster with many topics, many letters, many viewers.

    bench/bench_console.py [topics letters viewers]      10,000, 1,000,000 and 50 by default

The first page must be there within a second, also while letters are being counted, and memory must
not grow with viewers or time.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from redrive.config import load_settings
from redrive.envelope import Envelope
from redrive.fingerprint import Fingerprint
from redrive.kafka.publisher import KafkaPublisher
from redrive.local import stack
from redrive.local.waiting import wait_until
from redrive.record import Write

TOKEN = "changes-of-the-benchmark"
LIMIT_SECONDS = 1.0
LIMIT_MEGABYTES = 40
AT_ONCE = 500
APP = """
from redrive import App, RetryPolicy

app = App("shop", retry=RetryPolicy("5s 1m"))

@app.handler("orders")
def handle(record, ctx): ...
"""


def main() -> None:
    topics, letters, viewers = (int(each) for each in (sys.argv[1:4] or (10_000, 1_000_000, 50)))
    with stack(ephemeral=True) as running, tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(APP)
        create(running.bootstrap, topics)
        bury(running.bootstrap, letters)
        with console(running.bootstrap, folder) as (port, process):
            measure(port, process, letters, viewers)


def create(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    own = ["orders", "shop.retry.5s", "shop.retry.1m", "shop.dead", "shop.dead.state"]
    names = [*own, *(f"other-{number}" for number in range(count))]
    for first in range(0, len(names), AT_ONCE):
        made = admin.create_topics([NewTopic(name, 1) for name in names[first : first + AT_ONCE]])
        for each in made.values():
            each.result(120)
    print(f"{count:,} topics of others")


def bury(bootstrap: str, count: int) -> None:
    publisher = KafkaPublisher(load_settings({"bootstrap": bootstrap}, environ={}))
    for first in range(0, count, 10_000):
        publisher.publish([letter(number) for number in range(first, min(first + 10_000, count))])
    publisher.close()
    print(f"{count:,} letters")


def letter(number: int) -> Write:
    error = ("KeyError", "ValueError", "OSError", "shop.NoPrice")[number % 4]
    envelope = Envelope(
        app="shop",
        id=str(number),
        origin_topic="orders",
        origin_partition=0,
        origin_offset=number,
        first_received=1,
        error_type=error,
        error_message=f"order {number} has no price",
        error_group=Fingerprint("exhausted", error).id,
        dead_reason="exhausted",
    )
    return Write("shop.dead", b"k", b"x" * 100, envelope.headers(()))


@contextmanager
def console(bootstrap: str, folder: str):
    environ = {**os.environ, "REDRIVE_CONSOLE_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "redrive", "console", "shop:app", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--bootstrap", bootstrap],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        yield int(line.partition("127.0.0.1:")[2].partition("/")[0]), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def ask(port: int, path: str) -> tuple[float, str]:
    began = monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, f"{path}: {answer.status} {text[:200]}"
    return monotonic() - began, text


PAGES = ("", "/dead", "/dead/letters", "/audit")


def measure(port: int, process: psutil.Process, letters: int, viewers: int) -> None:
    began = monotonic()
    first = {page: ask(port, f"/apps/shop{page}")[0] for page in PAGES}
    words = f"{letters:,} of {letters:,} letters counted"
    assert wait_until(lambda: words in ask(port, "/apps/shop/dead")[1], 900, pause=0.2)
    counted, memory = monotonic() - began, megabytes(process)
    print(f"first pages while counting: {shown(first)}")
    print(f"{letters:,} letters counted after {counted:.0f} s, {memory:.0f} MB")
    with watched(port, viewers) as heard:
        before, at = process.cpu_times(), monotonic()
        assert wait_until(lambda: min(heard) >= 10, 300)
        now, seconds = process.cpu_times(), monotonic() - at
        busy = (now.user + now.system - before.user - before.system) / seconds
        under = {page: ask(port, f"/apps/shop{page}")[0] for page in PAGES}
    grown = megabytes(process) - memory
    print(f"{viewers} viewers, ten changes each: {busy:.0%} of a core, {grown:+.0f} MB")
    print(f"pages meanwhile: {shown(under)}")
    slowest = max(*first.values(), *under.values())
    kept = slowest <= LIMIT_SECONDS and grown <= LIMIT_MEGABYTES
    print(f"slowest page {slowest:.2f} s (limit {LIMIT_SECONDS}): {'kept' if kept else 'MISSED'}")
    if not kept:
        raise SystemExit(1)


@contextmanager
def watched(port: int, viewers: int):
    """Viewers who are told of changes; gives how many each has heard of."""
    heard = [0] * viewers
    ended = threading.Event()

    def look(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        path = "/apps/shop/live/" + ("flow", "groups")[number % 2]
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        assert answer.status == 200, f"viewer {number} is refused: {answer.status}"
        told = False  # an event ends with an empty line; what says that somebody is there is none
        while not ended.is_set() and (line := answer.readline()):
            heard[number] += told and not line.strip()
            told = line.startswith(b"data:") or (told and bool(line.strip()))
        connection.close()

    threads = [threading.Thread(target=look, args=(each,), daemon=True) for each in range(viewers)]
    for each in threads:
        each.start()
    yield heard
    ended.set()
    for each in threads:
        each.join(60)


def megabytes(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


def shown(seconds: dict[str, float]) -> str:
    return ", ".join(f"{page or '/'} {1000 * took:.0f} ms" for page, took in seconds.items())


if __name__ == "__main__":
    main()
