"""What secures a stack: an authority, certificates and passwords, in files that only we can read.

Clients log in with SCRAM over TLS, or with a certificate (mutual TLS, on a separate port). Brokers
and controllers also authenticate each other by certificate, so that no port is open to everybody.
Everybody but the administrator may do only what was granted.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redrive.config import SecurityArguments
from redrive.errors import LocalError
from redrive.local import folders
from redrive.local.certificates import Authority, authority_from
from redrive.local.tcp_ports import HOST

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
_BROKER: Final = "broker"
_AUTHORITY: Final = "redrive local authority"
_USER_NAMES: Final = "letters, digits, '.', '_' and '-'"


@dataclass(frozen=True)
class Securing:
    """The folder with the certificates and passwords of one stack."""

    folder: Path

    def prepare(self) -> None:
        """Create the authority, the brokers' certificate and the administrator, if missing."""
        folders.usable(self.folder)
        self.folder.chmod(0o700)
        if not self.ca.exists():
            made = Authority.new(_AUTHORITY).own()
            self._keep("authority.key", made.key)
            folders.write_durably(self.ca, made.certificate)
        if not self._broker.exists():
            issued = self._authority().issue(_BROKER, ip=HOST)
            self._keep(self._broker.name, issued.key + issued.certificate)
        credentials = f"{MECHANISM}=[name={ADMIN},password={self.new_password(ADMIN)}]"
        self._keep(self._format.name, f"--add-scram\n{credentials}\n")

    @property
    def ca(self) -> Path:
        """The certificate that clients trust."""
        return self.folder / "ca.pem"

    def password_file(self, user: str) -> Path:
        """The file with the password of a user, and nothing else."""
        return self.folder / f"{user}.password"

    def new_password(self, user: str) -> str:
        """The password of a user, generated if there is none yet."""
        file = self.password_file(user)
        if not file.exists():
            self._keep(file.name, secrets.token_urlsafe(24))
        return file.read_text()

    def by_password(self, user: str = ADMIN) -> SecurityArguments:
        """How a user logs in with its password."""
        return {
            "protocol": "SASL_SSL",
            "mechanism": MECHANISM,
            "user": user,
            "password": self.password_file(user).read_text(),
            "ca": str(self.ca),
        }

    def by_certificate(self, user: str) -> SecurityArguments:
        """How a user logs in with a certificate, which is issued if there is none yet."""
        certificate, key = self.folder / f"{user}.pem", self.folder / f"{user}.key"
        if not certificate.exists():
            issued = self._authority().issue(checked_name(user), ip=HOST)
            self._keep(key.name, issued.key)
            folders.write_durably(certificate, issued.certificate)
        return {
            "protocol": "SSL",
            "ca": str(self.ca),
            "certificate": str(certificate),
            "key": str(key),
        }

    def format_argument(self) -> str:
        """For Kafka's storage tool: a file, because everybody can read its command line."""
        return f"@{self._format}"

    def broker_settings(self, port: int, tls_port: int, controller_port: int) -> dict[str, str]:
        """The settings of a broker."""
        clients = f"SASL_SSL://{HOST}:{port},SSL://{HOST}:{tls_port}"
        return _SETTINGS | {
            "listeners": f"{clients},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": clients,
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.location": str(self.ca),
        }

    @property
    def _format(self) -> Path:
        return self.folder / "format.arguments"

    @property
    def _broker(self) -> Path:
        return self.folder / "broker-keystore.pem"

    def _authority(self) -> Authority:
        return authority_from(_AUTHORITY, (self.folder / "authority.key").read_text())

    def _keep(self, name: str, content: str) -> None:
        folders.write_durably(self.folder / name, content, mode=0o600)


def checked_name(user: str) -> str:
    """The name of a user, if it needs no quoting anywhere."""
    if not user or not all(one.isascii() and (one.isalnum() or one in "._-") for one in user):
        raise LocalError(f"A user name consists of {_USER_NAMES}; {user!r} does not.")
    if user in (ADMIN, _BROKER):
        raise LocalError(
            f"The user {user!r} is reserved: it is the stack's own, and may do everything."
        )
    return user


_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SETTINGS: Final = {
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "SSL",
    "sasl.enabled.mechanisms": MECHANISM,
    f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": _SCRAM,
    "listener.name.ssl.ssl.client.auth": "required",
    "listener.name.controller.ssl.client.auth": "required",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    # Users have one name, however they log in: User:shop.
    "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:{_BROKER}",
    "allow.everyone.if.no.acl.found": "false",
}
