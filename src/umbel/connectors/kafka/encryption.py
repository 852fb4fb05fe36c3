"""Diagnosis of a broker's encryption by a TLS handshake of umbel's own.

librdkafka reports one error for a certificate of an unknown authority, of another host, and one that has expired, and none at all
where a listener is encrypted and the source is not.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

PATIENCE = 3.0
"""Seconds for a broker to answer."""
_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_HOSTS = frozenset({62, 64})
"""The codes of OpenSSL for a certificate of other names and of other addresses."""
_LOCATION = "ssl.ca.location"
_AUTHORITY = 'name the certificate of the authority: options={"ssl.ca.location": "/path/ca.pem"}'


def certificate_problem(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return why the certificate of a broker is refused, and the remedy.

    Args:
        settings: of librdkafka.
    """
    location = settings.get(_LOCATION)
    for address in _addresses(settings):
        try:
            context = ssl.create_default_context(cafile=location, cadata=settings.get("ssl.ca.pem"))
            _handshake(address, context)
        except ssl.SSLCertVerificationError as error:
            return _problem(error, f"{address[0]}:{address[1]}", location)
        except OSError:
            continue
    return "its certificate cannot be verified", _AUTHORITY


def has_encryption(settings: Mapping[str, Any]) -> bool:
    """Return whether a broker answers a request for encryption."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for address in _addresses(settings):
        try:
            _handshake(address, context)
        except OSError:
            continue
        return True
    return False


def _problem(error: ssl.SSLCertVerificationError, address: str, location: str | None) -> tuple[str, str]:
    said = f"the certificate of {address} is refused: {error.verify_message}".rstrip(".")
    if error.verify_code in _OTHER_HOSTS:
        return (
            said,
            "give bootstrap_servers= a name that is in the certificate of the broker, or have it issued for this one",
        )
    if error.verify_code in {_EXPIRED, _NOT_YET_VALID}:
        return said, "renew the certificate of the broker, and check the clocks of both machines"
    return said, _AUTHORITY if location is None else f"{location} is of another authority: {_AUTHORITY}"


def _handshake(address: tuple[str, int], context: ssl.SSLContext) -> None:
    with closing(socket.create_connection(address, PATIENCE)) as plain:
        context.wrap_socket(plain, server_hostname=address[0]).close()


def _addresses(settings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for each in str(settings["bootstrap.servers"]).split(","):
        host, _, port = each.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdigit():
            yield host.strip("[]"), int(port)
