"""Certificates for the secured stack: an authority, and what it signs, as PEM."""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from redrive.local.p256 import PrivateKey

YEARS: Final = 10
_DAY: Final = timedelta(days=1)


class Certificate(NamedTuple):
    """A certificate with its key, both as PEM; the key unencrypted, in PKCS #8."""

    certificate: str
    key: str


class Authority(NamedTuple):
    """The authority that brokers and clients of one stack trust."""

    name: str
    key: PrivateKey

    @classmethod
    def new(cls, name: str) -> Authority:
        return cls(name, PrivateKey.new())

    def own(self) -> Certificate:
        """What others trust: its self-signed certificate."""
        return self._signed(self.name, self.key, _usage(_CERT_SIGN), _authority(is_one=True))

    def issue(self, name: str, *, ip: str) -> Certificate:
        """Issue one for a broker or client of that name, on a machine with that address."""
        address = bytes(map(int, ip.split(".")))
        names = _extension(_ALTERNATIVE, _sequence(_tlv(0x87, address), _tlv(0x82, b"localhost")))
        return self._signed(
            name, PrivateKey.new(), _usage(_SIGNATURE), _authority(is_one=False), names
        )

    def _signed(self, name: str, key: PrivateKey, *extensions: bytes) -> Certificate:
        now = datetime.now(UTC)
        issuer = _tlv(0x80, _key_id(self.key))
        about_keys = (
            _extension(_SUBJECT_KEY, _tlv(0x04, _key_id(key))),
            _extension(_ISSUER_KEY, _sequence(issuer)),
        )
        body = _sequence(
            _tlv(0xA0, _integer(2)),  # version 3
            _integer(secrets.randbits(120)),
            _sequence(_oid(_ECDSA_SHA256)),
            _name(self.name),
            _sequence(_time(now - _DAY), _time(now + YEARS * 365 * _DAY)),
            _name(name),
            _sequence(_EC, _bits(key.public.encoded())),
            _tlv(0xA3, _sequence(*extensions, *about_keys)),
        )
        signature = _sequence(*map(_integer, self.key.sign(body)))
        whole = _sequence(body, _sequence(_oid(_ECDSA_SHA256)), _bits(signature))
        return Certificate(_pem("CERTIFICATE", whole), _pem("PRIVATE KEY", _private(key)))


def authority_from(name: str, key: str) -> Authority:
    """The authority whose private key was kept as PEM."""
    body = base64.b64decode("".join(key.split("\n")[1:-2]))
    # As `_private` wrote it: the number is always at the same place.
    return Authority(name, PrivateKey.of(int.from_bytes(body[36:68], "big")))


# ASN.1, as far as certificates need it

_ECDSA_SHA256: Final = "1.2.840.10045.4.3.2"
_SUBJECT_KEY: Final = "2.5.29.14"
_KEY_USAGE: Final = "2.5.29.15"
_ALTERNATIVE: Final = "2.5.29.17"
_CONSTRAINTS: Final = "2.5.29.19"
_ISSUER_KEY: Final = "2.5.29.35"
_SIGNATURE: Final = bytes([7, 0x80])
_CERT_SIGN: Final = bytes([2, 0x04])


def _tlv(tag: int, *content: bytes) -> bytes:
    body = b"".join(content)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + body


def _sequence(*content: bytes) -> bytes:
    return _tlv(0x30, *content)


def _integer(number: int) -> bytes:
    return _tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _tlv(0x03, b"\x00", content)


def _oid(text: str) -> bytes:
    first, second, *others = map(int, text.split("."))
    body = bytes([40 * first + second])
    for number in others:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(0x80 | number & 0x7F)
        body += bytes(reversed(digits))
    return _tlv(0x06, body)


def _time(at: datetime) -> bytes:
    if at.year < 2050:  # as the standard wants it
        return _tlv(0x17, at.strftime("%y%m%d%H%M%SZ").encode())
    return _tlv(0x18, at.strftime("%Y%m%d%H%M%SZ").encode())


def _name(common: str) -> bytes:
    return _sequence(_tlv(0x31, _sequence(_oid("2.5.4.3"), _tlv(0x0C, common.encode()))))


def _extension(oid: str, content: bytes, *, critical: bool = False) -> bytes:
    return _sequence(_oid(oid), b"\x01\x01\xff" if critical else b"", _tlv(0x04, content))


def _usage(bits: bytes) -> bytes:
    return _extension(_KEY_USAGE, _tlv(0x03, bits), critical=True)


def _authority(*, is_one: bool) -> bytes:
    content = _sequence(b"\x01\x01\xff") if is_one else _sequence()
    return _extension(_CONSTRAINTS, content, critical=True)


def _key_id(key: PrivateKey) -> bytes:
    return hashlib.sha1(key.public.encoded(), usedforsecurity=False).digest()


def _private(key: PrivateKey) -> bytes:
    inner = _sequence(
        _integer(1), _tlv(0x04, key.encoded()), _tlv(0xA1, _bits(key.public.encoded()))
    )
    return _sequence(_integer(0), _EC, _tlv(0x04, inner))


def _pem(label: str, content: bytes) -> str:
    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


_EC: Final = _sequence(_oid("1.2.840.10045.2.1"), _oid("1.2.840.10045.3.1.7"))
