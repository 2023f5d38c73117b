"""`make demo-frames`: the orders pipeline on a Spark and a Kafka of its own, to the end."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import monotonic

import redrive.spark
from redrive.config import Settings, load_settings
from redrive.engines.spark.spark_session import session
from redrive.envelope import parse
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.local import stack
from redrive.local.jars import jar_set
from redrive.record import Record, TopicPartition, Write
from redrive.topics import OUTAGE, apply, plan_topics, topic_names

ORDERS = 3000
KNOWN = 40
"""Customers who are there from the start; the next ten come later, the last ten never."""
COMING = 50
CUSTOMERS = 60


def order(number: int) -> bytes:
    if number % 500 == 7:
        return b'{"id": "half an ord'
    fields = {"id": f"o{number}", "customer": number % CUSTOMERS, "amount": number % 90 + 0.5}
    return json.dumps(fields).encode()


def add_customers(folder: Path, numbers: range) -> None:
    lines = [json.dumps({"customer": n, "name": f"customer {n}"}) for n in numbers]
    # In one step: Spark may list the folder at any moment.
    made = folder.parent / "new.json"
    made.write_text("\n".join(lines) + "\n")
    made.rename(folder / f"from-{numbers.start}.json")


def prepare(settings: Settings) -> None:
    from orders import app

    topics = KafkaTopics(settings)
    topics.create("orders", 4, {})
    plan = plan_topics(app, topics.describe(topic_names(app)), outage=OUTAGE)
    list(apply(plan, topics))
    writes = [Write("orders", b"%d" % (n % CUSTOMERS), order(n)) for n in range(ORDERS)]
    KafkaPublisher(settings).publish(writes)


def read(log: KafkaLog, topic: str) -> list[Record]:
    places = [TopicPartition(topic, number) for number in range(log.partitions(topic))]
    return [record for place in places for record in log.read(place, *log.bounds(place))]


def tell(log: KafkaLog) -> bool:
    sent = Counter(json.loads(record.value or b"")["id"] for record in read(log, "orders.enriched"))
    dead = Counter(parse(record.headers).dead_reason for record in read(log, "desk.dead"))
    broken = sum(number % 500 == 7 for number in range(ORDERS))
    never = sum(n % CUSTOMERS >= COMING and n % 500 != 7 for n in range(ORDERS))
    print(f"  {len(sent):5} orders enriched, each once: {set(sent.values()) == {1}}")
    print(f"  {dead['rejected']:5} of broken JSON buried, {broken} were sent")
    print(f"  {dead['exhausted']:5} of customers who never came buried, {never} were sent")
    return (
        set(sent.values()) == {1}
        and len(sent) == ORDERS - broken - never
        and dead == {"rejected": broken, "exhausted": never}
    )


def main() -> int:
    os.environ.setdefault("REDRIVE_JARS", str(jar_set("kafka").folder.parent))
    sys.path.insert(0, str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as folder, stack(home=Path(folder) / "stack") as running:
        customers = Path(folder) / "customers"
        customers.mkdir()
        os.environ["CUSTOMERS"] = str(customers)
        add_customers(customers, range(KNOWN))
        settings = load_settings({"bootstrap": running.bootstrap})
        prepare(settings)
        print(f"{ORDERS} orders; {KNOWN} of {CUSTOMERS} customers are known")
        options = {"spark.ui.enabled": "false", "spark.jars": redrive.spark.connector_jars()}
        spark = session("demo-frames", "local[4, 4]", options)
        try:
            return 0 if watch(spark, settings, customers) else 1
        finally:
            spark.stop()


def watch(spark: object, settings: Settings, customers: Path) -> bool:
    began = monotonic()
    handle = redrive.spark.start(
        spark,  # type: ignore[arg-type]  # -- a session
        "orders:app",
        bootstrap=settings.servers(),
        until="empty",
    )
    handle.wait_until(lambda: handle.figures.total("park") > 0, 120)
    print(f"after {monotonic() - began:3.0f} s: orders of unknown customers wait; ten more come")
    add_customers(customers, range(KNOWN, COMING))
    handle.await_termination(300)
    print(f"after {monotonic() - began:3.0f} s: nothing waits any more")
    return tell(KafkaLog(settings, "demo"))


if __name__ == "__main__":
    raise SystemExit(main())
