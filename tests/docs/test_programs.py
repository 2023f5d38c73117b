"""Programs of the manual, and its set-up of an outbox: on a real Kafka and PostgreSQL."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from redrive.config import load_settings
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.record import TopicPartition, Write
from redrive.topics import apply, plan_topics, topic_names

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "how-to/own-program.md"
SHOP = """
from redrive import App, RetryPolicy

app = App({name!r}, retry=RetryPolicy("1s"))


@app.handler({topic!r}, sends=())
def order(record, ctx):
    if ctx.attempt == 1:
        raise OSError("not yet")
    print("handled", record.value.decode(), flush=True)
"""


def prepare(app, topic, settings, value=b"an order"):
    """Make its topics, with one record."""
    topics = KafkaTopics(settings)
    plan = plan_topics(app, topics.describe(topic_names(app)), create_sources=True)
    assert [error for _, error in apply(plan, topics)] == [None] * len(plan.fixes)
    publisher = KafkaPublisher(settings)
    publisher.publish([Write(topic, None, value)])
    publisher.close()


def module_of(text):
    namespace: dict = {"__name__": "shop"}
    exec(text, namespace)  # noqa: S102 -- what stands above, or in the manual
    return namespace["app"]


def shown(name, page=PAGE):
    """The program of that name on a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    fence = rf"^```python\n# {name}\n(.*?)^```$"
    (program,) = re.findall(fence, text, re.MULTILINE | re.DOTALL)
    return program


def started(folder, stack, *arguments):
    return subprocess.Popen(
        [sys.executable, *arguments],
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


@pytest.fixture
def shop(tmp_path, redrive_stack, redrive_prefix):
    """The folder of an app with one record, which fails at first."""
    topic = f"{redrive_prefix}.orders"
    text = SHOP.format(name=redrive_prefix, topic=topic)
    (tmp_path / "shop.py").write_text(text)
    prepare(module_of(text), topic, load_settings({"bootstrap": redrive_stack.bootstrap}))
    return tmp_path


@pytest.mark.parametrize("name", ["program.py", "background.py", "spark_program.py"])
def test_a_program_handles_what_is_there(name, shop, redrive_stack):
    (shop / name).write_text(shown(name))
    with started(shop, redrive_stack, name) as run:
        output, _ = run.communicate(timeout=240)
    assert run.returncode == 0, output
    assert "handled an order" in output


def test_a_web_server_answers_for_its_worker_and_stops_it(shop, redrive_stack):
    (shop / "web.py").write_text(shown("web.py"))
    with started(shop, redrive_stack, "-m", "uvicorn", "web:web", "--port", "0") as run:
        try:
            lines = iter(run.stdout.readline, "")
            address = next(found[0] for each in lines if (found := re.search(r"http://\S+", each)))
            assert any("handled an order" in line for line in lines)
            for path in ("/live", "/ready"):
                with urlopen(f"{address}{path}") as answer:  # noqa: S310 -- an address of ours
                    assert answer.status == 200
            with urlopen(f"{address}/metrics") as answer:  # noqa: S310 -- likewise
                assert b"redrive_handler_seconds" in answer.read()
            run.send_signal(signal.SIGTERM)
            output, _ = run.communicate(timeout=60)
        finally:
            run.kill()
    assert "Application shutdown complete" in output


def test_a_service_with_an_app_of_its_own_ends_when_it_is_asked_to(
    tmp_path, redrive_stack, redrive_prefix
):
    topic = f"{redrive_prefix}.orders"
    text = shown("service.py")
    text = text.replace('"shop"', repr(redrive_prefix)).replace('"orders"', repr(topic))
    prepare(module_of(text), topic, load_settings({"bootstrap": redrive_stack.bootstrap}))
    (tmp_path / "service.py").write_text(text)
    with started(tmp_path, redrive_stack, "service.py") as run:
        try:
            assert run.stdout.readline() == "handled an order\n"
            run.send_signal(signal.SIGTERM)
            output, _ = run.communicate(timeout=60)
        finally:
            run.kill()
    assert (run.returncode, output) == (0, "")


ROLES = ("redrive_migration", "shop_app", "shop_relay")


@pytest.fixture
def own(redrive_database, redrive_prefix):
    """The page's text with roles, topics and an app of this test's: others share the stack."""
    names = {name: f"{name}_{uuid.uuid4().hex[:8]}" for name in ROLES}
    topics = {f'"{name}"': f'"{redrive_prefix}.{name}"' for name in ("order.paid", "invoices")}

    def renamed(text):
        # The owner of this database may act as any of them.
        text = re.sub(
            r"postgresql://(\w+):\w+@db/shop", rf"{redrive_database}&options=-crole%3D\1", text
        )
        changes = {**names, **topics, 'App("shop"': f'App("{redrive_prefix}"'}
        for name, other in changes.items():
            text = text.replace(name, other)
        return text

    yield renamed
    with psycopg.connect(redrive_database, autocommit=True) as admin:
        made = admin.execute(
            "select rolname from pg_roles where rolname = any(%s)", [[*names.values()]]
        )
        for (name,) in made.fetchall():
            admin.execute(f"drop owned by {name} cascade")
            admin.execute(f"drop role {name}")


def test_an_outbox_is_set_up_as_its_page_says(
    own, tmp_path, redrive_stack, redrive_database, redrive_prefix
):
    page = (DOCS / "how-to/outbox.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sql|sh)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    text = own(shown("shop.py", "how-to/outbox.md"))
    (tmp_path / "shop.py").write_text(text)
    settings = load_settings({"bootstrap": redrive_stack.bootstrap})
    topic = f"{redrive_prefix}.order.paid"
    prepare(module_of(text), topic, settings, b'{"id": "7", "amount": 3}')
    env = {**os.environ, "REDRIVE_BOOTSTRAP": redrive_stack.bootstrap}
    ran = []
    with psycopg.connect(redrive_database, autocommit=True) as admin:
        admin.execute("create table invoice (id text primary key, amount integer)")
        for language, code in blocks:
            if language == "sql":
                admin.execute(own(code))
                continue
            for line in map(own, code.splitlines()):
                if line.startswith("export REDRIVE_DATABASE="):
                    env["REDRIVE_DATABASE"] = line.partition("=")[2]
                elif line.startswith("redrive "):
                    ran.append(line.split()[1])
                    until = ["--until-empty"] if ran[-1] in {"run", "relay"} else []
                    words = shlex.split(line.replace("--metrics-port 9100", ""))
                    subprocess.run(
                        [sys.executable, "-m", *words, *until], cwd=tmp_path, env=env, check=True
                    )
            admin.execute(own("grant insert on invoice to shop_app"))
        assert admin.execute("select id, amount from invoice").fetchall() == [("7", 3)]
        assert admin.execute("select count(*) from redrive.outbox").fetchone() == (0,)
    assert ran == ["ledger", "ledger", "topics", "doctor", "run", "relay"]
    log = KafkaLog(settings, redrive_prefix)
    invoices = f"{redrive_prefix}.invoices"
    places = [TopicPartition(invoices, number) for number in range(log.partitions(invoices))]
    sent = [record.key for place in places for record in log.read(place, *log.bounds(place))]
    log.close()
    assert sent == [b"7"]
