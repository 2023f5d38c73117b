"""The security settings in the terms of Kafka's Java client, which Spark's connector uses.

Certificates are given as PEM text, so that no key store file is needed on the executors.
"""

from __future__ import annotations

from typing import Final

from redrive.config import Security, Settings, pem_text

_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}  # in this order


def java_properties(settings: Settings) -> dict[str, str]:
    """The properties of a Java client. They hold secrets: never print them."""
    security = settings.security
    properties = {
        "bootstrap.servers": settings.servers(),
        "security.protocol": security.protocol,
        **_sasl(security),
    }
    if security.ca is not None:
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.certificates"] = pem_text(security.ca)
    if security.certificate is not None and security.key is not None:
        properties["ssl.keystore.type"] = "PEM"
        properties["ssl.keystore.certificate.chain"] = pem_text(security.certificate)
        properties["ssl.keystore.key"] = pem_text(security.key.reveal())
    return properties


def _sasl(security: Security) -> dict[str, str]:
    if security.mechanism is None or security.user is None or security.password is None:
        return {}
    user, password = _quoted(security.user), _quoted(security.password.reveal())
    return {
        "sasl.mechanism": security.mechanism,
        "sasl.jaas.config": (
            f"{_MODULES[security.mechanism]} required username={user} password={password};"
        ),
    }


def _quoted(text: str) -> str:
    """Quoted for Java's tokenizer, which would read what follows a line break as a setting."""
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return f'"{text}"'
