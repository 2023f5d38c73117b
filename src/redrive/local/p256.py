"""Keys and signatures on the curve P-256, for the certificates of the secured stack.

In plain Python, because nothing else that makes keys is everywhere the stack runs: Java's keytool
does not hand out private keys, OpenSSL's command is not on every machine, and a package for it
would be one more to install for something that only tests need. It is not constant-time, which
would matter to a server, but not to somebody who creates a few certificates for local use.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_A: Final = -3
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class Point(NamedTuple):
    """A point of the curve."""

    x: int
    y: int

    def encoded(self) -> bytes:
        """Uncompressed, as keys are encoded."""
        return b"\x04" + self.x.to_bytes(32, "big") + self.y.to_bytes(32, "big")


_G: Final = Point(
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


class PrivateKey(NamedTuple):
    """A private key, and the public one that belongs to it."""

    number: int
    public: Point

    @classmethod
    def of(cls, number: int) -> PrivateKey:
        return cls(number, _times(number, _G))

    @classmethod
    def new(cls) -> PrivateKey:
        return cls.of(_random())

    def encoded(self) -> bytes:
        return self.number.to_bytes(32, "big")

    def sign(self, message: bytes) -> tuple[int, int]:
        """ECDSA with SHA-256."""
        digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
        while True:
            nonce = _random()
            r = _times(nonce, _G).x % _ORDER
            s = pow(nonce, -1, _ORDER) * (digest + r * self.number) % _ORDER
            if r and s:
                return r, s


def _random() -> int:
    return 1 + secrets.randbelow(_ORDER - 1)


def _times(number: int, point: Point) -> Point:
    """The point added up `number` times, by doubling."""
    found: Point | None = None
    for bit in f"{number:b}":
        if found is not None:
            found = _added(found, found)
        if bit == "1":
            found = point if found is None else _added(found, point)
    if found is None:
        raise AssertionError("keys and nonces are not 0")
    return found


def _added(one: Point, other: Point) -> Point:
    # Never the point at infinity: all numbers here are below the order of the curve.
    if one == other:
        slope = (3 * one.x * one.x + _A) * pow(2 * one.y, -1, _P)
    else:
        slope = (other.y - one.y) * pow(other.x - one.x, -1, _P)
    x = (slope * slope - one.x - other.x) % _P
    return Point(x, (slope * (one.x - x) - one.y) % _P)
