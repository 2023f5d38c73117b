"""Certificates that OpenSSL and Java accept, and what they must not accept."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from redrive.local.certificates import Authority, Certificate, authority_from
from redrive.local.p256 import PrivateKey

HOST = "127.0.0.1"


def file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def shake_hands(folder: Path, server: Certificate, ca: Certificate, host: str = HOST) -> None:
    """A client that trusts `ca`, as strictly as OpenSSL can, meets a server; in memory."""
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(
        file(folder, "server.pem", server.certificate), file(folder, "server.key", server.key)
    )
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.verify_flags |= ssl.VERIFY_X509_STRICT
    asks.load_verify_locations(cadata=ca.certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        asks.wrap_bio(back, there, server_hostname=host),
        serves.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(3):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new("tests")


def test_the_curve_is_the_standards():
    key = PrivateKey.of(2)
    assert f"{key.public.x:064x}" == (
        "7cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978"
    )
    assert f"{key.public.y:064x}" == (
        "07775510db8ed040293d9ac69f7430dbba7dade63ce982299e04b79d227873d1"
    )


@pytest.mark.parametrize("host", [HOST, "localhost"])
def test_who_trusts_the_authority_trusts_what_it_signed(authority, tmp_path, host):
    shake_hands(tmp_path, authority.issue("broker", ip=HOST), authority.own(), host)


def test_another_authority_with_the_same_name_is_not_trusted(authority, tmp_path):
    signed = Authority.new("tests").issue("broker", ip=HOST)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, signed, authority.own())


def test_another_host_is_not_the_one_it_was_signed_for(authority, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        shake_hands(tmp_path, authority.issue("broker", ip=HOST), authority.own(), "elsewhere")


def test_what_was_signed_cannot_sign(authority, tmp_path):
    middle = authority.issue("broker", ip=HOST)
    forged = authority_from("broker", middle.key).issue("broker", ip=HOST)
    both = Certificate(forged.certificate + middle.certificate, forged.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, both, authority.own())


def test_an_authority_is_the_same_after_a_restart(authority, tmp_path):
    again = authority_from("tests", authority.own().key)
    assert again == authority
    shake_hands(tmp_path, again.issue("broker", ip=HOST), authority.own())
