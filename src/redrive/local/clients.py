"""How Kafka clients log in to a stack."""

from __future__ import annotations

from typing import Any

from redrive.config import Security, SecurityArguments
from redrive.kafka.config import security_config
from redrive.secret import Secret


def client_config(bootstrap: str, security: SecurityArguments) -> dict[str, Any]:
    """The settings of a confluent_kafka client. They contain secrets: never print them."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap}
    if not security:
        return config
    given: dict[str, Any] = dict(security)
    given |= {name: Secret(given[name]) for name in ("password", "key") if name in given}
    return config | security_config(Security(**given))
