"""The programs of the manual, which start an engine by themselves: run against a real Kafka."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.config import load_settings
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.record import Write
from redrive.topics import apply, plan_topics, topic_names

DOCS = Path(__file__).parents[2] / "docs"
SHOP = """
from redrive import App, RetryPolicy

app = App({name!r}, retry=RetryPolicy("1s"))


@app.handler({topic!r}, sends=())
def order(record, ctx):
    if ctx.attempt == 1:
        raise OSError("not yet")
    print("handled", record.value.decode(), flush=True)
"""


def prepare(app, topic, settings):
    """Make its topics, with one record."""
    topics = KafkaTopics(settings)
    plan = plan_topics(app, topics.describe(topic_names(app)), create_sources=True)
    assert [error for _, error in apply(plan, topics)] == [None] * len(plan.fixes)
    publisher = KafkaPublisher(settings)
    publisher.publish([Write(topic, None, b"an order")])
    publisher.close()


def module_of(text):
    namespace: dict = {"__name__": "shop"}
    exec(text, namespace)  # noqa: S102 -- what stands above, or in the manual
    return namespace["app"]


def shown(page, name):
    """The program of that name on a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    fence = rf"^```python\n# {name}\n(.*?)^```$"
    (program,) = re.findall(fence, text, re.MULTILINE | re.DOTALL)
    return program


def started(program, folder, stack):
    (folder / "program.py").write_text(program)
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        env={
            **os.environ,
            "REDRIVE_BOOTSTRAP": stack.bootstrap,
            "PYSPARK_PYTHON": sys.executable,  # as in an environment that is activated
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("page", ["explanation/worker.md", "explanation/spark.md"])
def test_a_program_handles_what_is_there(page, tmp_path, redrive_stack, redrive_prefix):
    topic = f"{redrive_prefix}.orders"
    text = SHOP.format(name=redrive_prefix, topic=topic)
    (tmp_path / "shop.py").write_text(text)
    prepare(module_of(text), topic, load_settings({"bootstrap": redrive_stack.bootstrap}))
    with started(shown(page, "program.py"), tmp_path, redrive_stack) as run:
        output, _ = run.communicate(timeout=240)
    assert run.returncode == 0, output
    assert "handled an order" in output


def test_a_service_with_an_app_of_its_own_ends_when_it_is_asked_to(
    tmp_path, redrive_stack, redrive_prefix
):
    topic = f"{redrive_prefix}.orders"
    text = shown("explanation/worker.md", "service.py")
    text = text.replace('"shop"', repr(redrive_prefix)).replace('"orders"', repr(topic))
    prepare(module_of(text), topic, load_settings({"bootstrap": redrive_stack.bootstrap}))
    with started(text, tmp_path, redrive_stack) as run:
        try:
            assert run.stdout.readline() == "handled an order\n"
            run.send_signal(signal.SIGTERM)
            output, _ = run.communicate(timeout=60)
        finally:
            run.kill()
    assert (run.returncode, output) == (0, "")
