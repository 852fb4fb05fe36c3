"""The access policy of a server: address, host names, tokens, proxy and TLS.

Imports nothing heavy.
"""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from umbel.errors import InvalidValue

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

VARIABLE = "UMBEL_POLICY"
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def reached_at(host: str) -> str:
    """Return the address at which this machine reaches a server that listens on another one."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104  where it listens


def url_of(scheme: str, host: str, port: int) -> str:
    """Return the URL of a server for clients on this machine.

    Args:
        scheme: `http` or `https`.
        host: the address it listens on; an IPv6 address without brackets.
        port: the port it listens on.
    """
    reached = reached_at(host)
    return f"{scheme}://{f'[{reached}]' if ':' in reached else reached}:{port}"


@dataclass(frozen=True, slots=True)
class Policy:
    """The access policy of a server.

    Args:
        host: the address it listens on.
        allowed_hosts: names by which requests may address it, besides those of the loopback address and `host`.
        requires_token: if true, reading and logging on the loopback address require a token, too.
        is_behind_proxy: whether all requests come through a reverse proxy, which adds the client's address.
        tls_cert: the file with its certificate; None without TLS.
        tls_key: the file with the private key of that.
        queries_only: whether it refuses all that needs the worker's folder: it may then be on another machine.
    """

    host: str = LOOPBACK
    allowed_hosts: tuple[str, ...] = ()
    requires_token: bool = False
    is_behind_proxy: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    queries_only: bool = False

    @property
    def scheme(self) -> str:
        """The scheme of the server's URL."""
        return "https" if self.tls_cert else "http"

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the server, without a proxy."""
        return is_loopback(self.host) and not self.is_behind_proxy

    def url(self, port: int) -> str:
        """Return the server's URL for clients on this machine."""
        return url_of(self.scheme, self.host, port)

    def hand_on(self) -> None:
        """Write the policy to the environment of child processes."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @staticmethod
    def handed_on() -> Policy:
        """Read the policy from the environment set by the parent process.

        By default it is that of the loopback address.
        """
        found = json.loads(os.environ.get(VARIABLE, "{}"))
        return Policy(**{**found, "allowed_hosts": tuple(found.get("allowed_hosts", ()))})

    def arguments(self) -> list[str]:
        """Return the policy as command line options of `umbel serve`."""
        hosts = [part for each in self.allowed_hosts for part in ("--allowed-host", each)]
        flags = ["--require-token"] * self.requires_token + ["--behind-proxy"] * self.is_behind_proxy
        files = ["--tls-cert", self.tls_cert, "--tls-key", self.tls_key] if self.tls_cert and self.tls_key else []
        only = ["--queries-only"] * self.queries_only
        return ["--host", self.host, *hosts, *flags, *files, *only]

    def check(self, deployment: Deployment) -> None:
        """Refuse to admit other machines without tokens and encryption.

        Raises:
            InvalidValue: there are no tokens, or neither TLS nor a proxy that has it; or the folder is not the worker's.
        """
        if not self.queries_only:
            deployment.check_home()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidValue("--tls-cert and --tls-key go together", hint="give both, or neither")
        if self.is_local:
            return
        from umbel.catalog.tokens import Tokens

        reach = f"a server on {self.host}" if not self.is_behind_proxy else "a server behind a proxy"
        if not (self.tls_cert or self.is_behind_proxy):
            raise InvalidValue(
                f"{reach} can be reached by other machines, and its tokens could be read on the way",
                hint="--tls-cert and --tls-key; or --behind-proxy, where a reverse proxy has TLS; or leave out --host",
            )
        if all(each.is_local for each in Tokens(deployment.catalog).valid()):
            raise InvalidValue(
                f"{reach} can be reached by other machines, and there are no tokens",
                hint="umbel token create NAME --role admin makes the first; or leave out --host",
            )


def is_loopback(host: str) -> bool:
    """Return whether an address, or `localhost`, is this machine's own."""
    name = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"
