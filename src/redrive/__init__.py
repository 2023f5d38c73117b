"""Reliable Kafka consumption in Python, with or without Spark."""

from redrive.app import App
from redrive.backoff import Backoff, GiveBack, InPlace
from redrive.errors import (
    ConfigurationError,
    ContextError,
    EnvelopeError,
    HandlerTimeout,
    LocalError,
    PublishError,
    RedriveError,
)
from redrive.ids import field, header, key, optional
from redrive.policy import RetryPolicy
from redrive.processing.calls.context import BatchContext, Context
from redrive.record import Record
from redrive.signals import Bury, Retry

__version__ = "0.1.0.dev0"

__all__ = [
    "App",
    "Backoff",
    "BatchContext",
    "Bury",
    "ConfigurationError",
    "Context",
    "ContextError",
    "EnvelopeError",
    "GiveBack",
    "HandlerTimeout",
    "InPlace",
    "LocalError",
    "PublishError",
    "Record",
    "RedriveError",
    "Retry",
    "RetryPolicy",
    "field",
    "header",
    "key",
    "optional",
]
