"""Users of a secured stack, and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from redrive.errors import LocalError
from redrive.kafka.rdkafka import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from redrive.local.waiting import wait_until
from redrive.permissions import Permission

_SECONDS: Final = 15.0
_ITERATIONS: Final = 4096
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


class Users:
    """Creates users, grants and revokes, as the administrator; in force when a call returns."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._admin = AdminClient({**config, "log_level": 0})

    def add(self, name: str, password: str) -> None:
        """Create a user with a password, or change its password."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        change = UserScramCredentialUpsertion(name, how, password.encode())
        asked = self._admin.alter_user_scram_credentials([change])
        _done(f"create the user {name}", asked[name].result)
        self._wait(f"the user {name}", lambda: self._knows(name))

    def grant(self, name: str, permissions: Iterable[Permission]) -> None:
        """Grant these permissions to a user, and leave the rest as it is."""
        wanted = _bindings(name, permissions, AclBinding)
        for asked in self._admin.create_acls(wanted).values() if wanted else ():
            _done(f"grant permissions to {name}", asked.result)
        self._wait(f"the permissions granted to {name}", lambda: set(wanted) <= self._allowed(name))

    def revoke(self, name: str, permissions: Iterable[Permission]) -> None:
        """Revoke these permissions from a user, and leave the rest as it is."""
        permissions = list(permissions)
        gone = _bindings(name, permissions, AclBinding)
        filters = _bindings(name, permissions, AclBindingFilter)
        for asked in self._admin.delete_acls(filters).values() if filters else ():
            _done(f"revoke permissions of {name}", asked.result)
        self._wait(
            f"the permissions revoked from {name}", lambda: self._allowed(name).isdisjoint(gone)
        )

    def _knows(self, name: str) -> bool:
        asked: Any = self._admin.describe_user_scram_credentials([name])
        try:
            asked[name].result()
        except KafkaException:
            return False
        return True

    def _allowed(self, name: str) -> set[AclBinding]:
        anything: Any = None
        everything = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            _principal(name),
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return set(_done("list permissions", self._admin.describe_acls(everything).result))

    def _wait(self, what: str, fulfilled: Callable[[], bool]) -> None:
        # The controller records it at once; brokers follow.
        if not wait_until(fulfilled, _SECONDS):
            raise LocalError(f"Kafka did not pick up {what} within {_SECONDS:.0f} s.")


def _bindings(name: str, permissions: Iterable[Permission], make: Callable[..., Any]) -> list[Any]:
    """Each once, although several purposes may need it: the client refuses duplicates."""
    made = (
        make(
            _RESOURCES[one.resource],
            one.name,
            ResourcePatternType.PREFIXED if one.prefixed else ResourcePatternType.LITERAL,
            _principal(name),
            "*",
            AclOperation[each],
            AclPermissionType.ALLOW,
        )
        for one in permissions
        for each in one.operations
    )
    return list(dict.fromkeys(made))


def _principal(name: str) -> str:
    return f"User:{name}"


def _done(what: str, result: Callable[..., Any]) -> Any:
    try:
        return result(_SECONDS)
    except KafkaException as raised:
        raise LocalError(f"Kafka refused to {what}: {raised.args[0].str()}") from None
