"""librdkafka's settings, made from redrive's; what it logs goes to Python's logging.

What redrive's guarantees depend on is set last, so that nothing else can change it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from redrive.config import Security, Settings, is_pem
from redrive.errors import ConfigurationError
from redrive.logs import Repeats
from redrive.secret import MASK, Secret, is_secret
from redrive.tuning import TRANSACTION_TIMEOUT

log: Final = logging.getLogger("redrive.kafka")
# Without any handler Python would print warnings to stderr: that is the application's choice.
log.addHandler(logging.NullHandler())

Config = dict[str, Any]
_Handle = TypeVar("_Handle")

_LARGEST_MESSAGE: Final = (
    1_000_000_000  # librdkafka's own maximum: the topic decides, not the client
)
_CONSUMER_ONLY: Final = ("fetch.", "queued.", "session.", "heartbeat.", "max.poll.", "check.crcs")
_TIMES: Final = re.compile(r"\(after \d+ms.*", re.DOTALL)
_PRODUCER_ONLY: Final = (
    "linger.",
    "batch.",
    "compression.",
    "message.timeout",
    "delivery.timeout",
    "transaction.",
    "queue.buffering.",
    "enable.gapless.",
)


def producer_config(settings: Settings) -> Config:
    """For a producer: idempotent, all replicas, keys where Java's clients put them."""
    return {
        # A write that no broker accepts must be known soon: the engine retries, not librdkafka.
        "message.timeout.ms": 30_000,
        "topic.metadata.propagation.max.ms": 5_000,
        "message.max.bytes": _LARGEST_MESSAGE,
        # A mistyped name must be refused, not become a topic with the broker's defaults.
        "allow.auto.create.topics": False,
        **_shared(settings, without=_CONSUMER_ONLY),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        # A delivery report per message has its price: only failures are reported.
        "delivery.report.only.error": True,
    }


def transactional_config(settings: Settings, transactional_id: str) -> Config:
    """For a transactional producer: a message times out before its transaction does."""
    config = producer_config(settings)
    given = config.pop("delivery.timeout.ms", config["message.timeout.ms"])  # librdkafka's alias
    within = int(config.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT))
    return {
        **config,
        "message.timeout.ms": min(int(given) or within, within),  # 0 is never
        "transactional.id": transactional_id,
    }


def consumer_config(settings: Settings, group: str) -> Config:
    """For a consumer that is assigned manually and reads only committed records."""
    return {
        # A range that ends in a transaction marker costs one fetch wait: half a second by default.
        "fetch.wait.max.ms": 10,
        "fetch.error.backoff.ms": 50,
        # A queue that was full must be refilled soon, not a second later.
        "fetch.queue.backoff.ms": 20,
        "queued.max.messages.kbytes": 4_096,
        "allow.auto.create.topics": False,
        **_shared(settings, without=_PRODUCER_ONLY),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Never reset: an offset that is gone is for redrive to report.
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }


def admin_config(settings: Settings) -> Config:
    """For an admin client."""
    # A request that nobody answers must leave time for another one.
    return {
        "socket.timeout.ms": 10_000,
        **_shared(settings, without=_CONSUMER_ONLY + _PRODUCER_ONLY),
    }


def make_handle(
    make: Callable[..., _Handle],
    config: Config,
    on_error: Callable[[KafkaError], None] | None = None,
) -> _Handle:
    """A producer, consumer or admin client; a mistake in the settings is a ConfigurationError."""
    try:
        return make({**config, "error_cb": on_error or report_error}, logger=log)
    except KafkaException as error:
        # Its text may quote the rejected value.
        text = error.args[0].str()
        for name, value in config.items():
            if is_secret(name) and value:
                text = text.replace(str(value), MASK)
        raise ConfigurationError(f"librdkafka rejects the settings: {text}") from None


def report_error(error: KafkaError) -> None:
    """Report errors that belong to no request: librdkafka keeps trying by itself."""
    log.warning("%s: librdkafka keeps trying", error.str())


class NotAgain(logging.Filter):
    """Passes the same line once a minute: librdkafka repeats itself ten times a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeats = Repeats(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is news."""
        return self._repeats.is_news(_TIMES.sub("", record.getMessage()))


log.addFilter(NotAgain())


def security_config(security: Security) -> Config:
    """The security settings in librdkafka's terms."""
    config: Config = {"security.protocol": security.protocol.lower()}
    if security.mechanism is not None:
        config["sasl.mechanism"] = security.mechanism
    if security.user is not None:
        config["sasl.username"] = security.user
    if security.password is not None:
        config["sasl.password"] = security.password.reveal()
    key = None if security.key is None else security.key.reveal()
    parts = {"ca": security.ca, "certificate": security.certificate, "key": key}
    for part, given in parts.items():
        if given is not None:
            config[f"ssl.{part}.{'pem' if is_pem(given) else 'location'}"] = given
    return config


def _shared(settings: Settings, without: tuple[str, ...]) -> Config:
    """What all handles share; settings of other kinds of handles would only cause warnings."""
    return {
        "bootstrap.servers": settings.servers(),
        "client.id": "redrive",
        **security_config(settings.security),
        **{
            name: value.reveal() if isinstance(value, Secret) else value
            for name, value in settings.librdkafka.items()
            if not name.startswith(without)
        },
    }
