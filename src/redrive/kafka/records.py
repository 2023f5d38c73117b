"""Records, made of what the client has read."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Message

from redrive.kafka.headers import headers_of
from redrive.record import NO_TIMESTAMP, Record, TopicPartition

_new: Final = tuple.__new__


def records_of(messages: list[Message], partition: TopicPartition) -> list[Record]:
    """Made once per message: by the tuple's own constructor, in half the time."""
    topic, number = partition
    try:
        return [
            _new(
                Record,
                (
                    topic,
                    number,
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(headers) if (headers := message.headers()) else (),
                    at[1] if (at := message.timestamp())[0] and at[1] != NO_TIMESTAMP else None,
                ),
            )
            for message in messages
        ]
    except SystemError as error:  # the name of a header is not UTF-8
        return [_record_of(message, partition, error) for message in messages]


def _record_of(message: Message, partition: TopicPartition, error: SystemError) -> Record:
    return Record(
        *partition,
        message.offset() or 0,
        message.key(),
        message.value(),
        headers_of(message, error),
        at[1] if (at := message.timestamp())[0] and at[1] != NO_TIMESTAMP else None,
    )
