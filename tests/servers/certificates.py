"""Certificates of servers of tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Authority:
    """An authority of certificates.

    Args:
        name: its common name.
    """

    def __init__(self, name: str) -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _named(name)
        self._certificate = _signed(self._name, self._key.public_key(), self._name, self._key, is_authority=True)

    def write(self, file: Path) -> Path:
        """Write its certificate to a file; return the file."""
        file.write_bytes(self._certificate.public_bytes(_PEM))
        return file

    def write_server(self, file: Path, *hosts: str, expired: timedelta = -DAY) -> Path:
        """Write the key of a server and its certificate to one file; return the file.

        Args:
            file: to write.
            hosts: names of the server.
            expired: how long ago the certificate expired.
        """
        key, until = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC) - expired
        made = _signed(_named(hosts[0]), key.public_key(), self._name, self._key, *hosts, until=until)
        file.write_bytes(_private(key, serialization.PrivateFormat.PKCS8) + made.public_bytes(_PEM))
        return file


def write_certificate(folder: Path, *hosts: str) -> tuple[Path, Path]:
    """Write a certificate of hosts, signed by itself, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _named(hosts[0])
    made = _signed(name, key.public_key(), name, key, *hosts, is_authority=True)
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(_PEM))
    private.write_bytes(_private(key, serialization.PrivateFormat.TraditionalOpenSSL))
    return certificate, private


_PEM = serialization.Encoding.PEM


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(_PEM, form, serialization.NoEncryption())


def _signed(
    subject: x509.Name,
    public: Any,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *hosts: str,
    is_authority: bool = False,
    until: datetime | None = None,
) -> x509.Certificate:
    until = until or datetime.now(UTC) + DAY
    builder = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        .not_valid_before(min(until, datetime.now(UTC)) - HOUR)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
    return builder.sign(key, hashes.SHA256())


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
