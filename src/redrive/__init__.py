"""Reliable Kafka consumption in Python, with or without Spark."""

from redrive.app import App
from redrive.backoff import Backoff, GiveBack, InPlace
from redrive.config import Settings, load_settings
from redrive.errors import (
    ConfigurationError,
    ContextError,
    EnvelopeError,
    HandlerTimeout,
    LocalError,
    PublishError,
    RedriveError,
)
from redrive.guard import Guard
from redrive.ids import field, header, key, optional
from redrive.policy import RetryPolicy
from redrive.processing.calls.context import BatchContext, Context
from redrive.record import Record
from redrive.signals import Bury, Outage, Retry

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
    "Guard",
    "HandlerTimeout",
    "InPlace",
    "LocalError",
    "Outage",
    "PublishError",
    "Record",
    "RedriveError",
    "Retry",
    "RetryPolicy",
    "Settings",
    "field",
    "header",
    "key",
    "load_settings",
    "optional",
]
