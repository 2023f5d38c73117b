"""Dead letters for tests: an app's, and those of other consumers as their documentation says."""

from __future__ import annotations

from redrive import App, Bury, RetryPolicy
from redrive.record import Record
from redrive.testing import Simulation


def shop(name="shop", retry="5s", **options):
    """An app whose handler does what a record's value says."""
    app = App(name, retry=RetryPolicy(retry), **options)

    @app.handler("orders")
    def handle(record, ctx):
        word, _, rest = record.value.decode().partition(" ")
        if word == "missing":
            raise KeyError(rest)
        if word == "bad":
            raise Bury(f"order {rest} is bad")
        if word == "away":
            raise OSError(f"host {rest} is away")
        ctx.send("done", record.value, key=record.key)

    return app


def buried(app, *values, partitions=1):
    """A simulation in which records with these values have died, each under its own key."""
    sim = Simulation(app, partitions=partitions)
    for number, value in enumerate(values):
        sim.send("orders", value, key=f"k{number % 7}")
    sim.run_until_empty()
    return sim


def foreign(topic, *headers, value=b"v", offset=0):
    return Record(topic, 0, offset, b"k", value, tuple(headers), 1_751_371_696_789)


_TRACE = b"""org.springframework...: Listener failed
	at org.springframework.A.b(A.java:1)
Caused by: java.lang.IllegalStateException: order 17 has no price
	at com.shop.Billing.lambda$charge$0(Billing.java:42)
	... 12 more
"""
SPRING = (
    ("trace-id", b"abc"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", (3).to_bytes(4)),
    ("kafka_dlt-original-offset", (4711).to_bytes(8)),
    ("kafka_dlt-original-timestamp", (1_751_371_000_000).to_bytes(8)),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    (
        "kafka_dlt-exception-fqcn",
        b"org.springframework.kafka.listener.ListenerExecutionFailedException",
    ),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"Listener failed; order 17 has no price"),
    (
        "kafka_dlt-exception-stacktrace",
        _TRACE,
    ),
)
SPRING_RETRYABLE = (
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", (1).to_bytes(4)),
    ("kafka_original-offset", (27).to_bytes(8)),
    ("kafka_exception-fqcn", b"java.lang.RuntimeException"),
    ("kafka_exception-message", b"no"),
    ("retry_topic-attempts", (4).to_bytes(4)),
    ("retry_topic-original-timestamp", (1_751_371_000_000).to_bytes(6)),
)
SMALLRYE = (
    ("dead-letter-exception-class-name", b"java.lang.RuntimeException"),
    ("dead-letter-reason", b"something went wrong"),
    ("dead-letter-cause-class-name", b"java.io.IOException"),
    ("dead-letter-cause", b"no answer"),
    ("dead-letter-topic", b"movies"),
    ("dead-letter-partition", b"2"),
    ("dead-letter-offset", b"99"),
)
CONNECT = (
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"5"),
    ("__connect.errors.connector.name", b"sink"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
    (
        "__connect.errors.exception.class.name",
        b"org.apache.kafka.connect.errors.DataException",
    ),
    ("__connect.errors.exception.message", b"Converting byte[] to Kafka Connect data failed"),
    ("__connect.errors.exception.stacktrace", b"org...DataException\n\tat org.a.B.c(B.java:9)\n"),
)
STREAMS = (
    ("__streams.errors.exception", b'java.lang.NumberFormatException: For input string: "x"'),
    ("__streams.errors.message", b'For input string: "x"'),
    ("__streams.errors.stacktrace", b"java...\n\tat java.lang.Long.parseLong(Long.java:7)\n"),
    ("__streams.errors.topic", b"clicks"),
    ("__streams.errors.partition", b"7"),
    ("__streams.errors.offset", b"12"),
)
SHARE = (
    ("__dlq.errors.topic", b"jobs"),
    ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"41"),
    ("__dlq.errors.group", b"workers"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
)
