"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.serving.policy import Policy

PORT = 8425
LOOPBACK = "127.0.0.1"
DIRECTORY = Path(".umbel")
MAIN = "main"
URL = f"http://{LOOPBACK}:{PORT}"

Module = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:APP]",
        help="A module or a file: every dataset and featureset in it; or the name of an umbel.App in it.",
        show_default=False,
    ),
]
Directory = Annotated[Path, typer.Option("--dir", envvar="UMBEL_DIR", help="Where umbel keeps everything.")]
Port = Annotated[int, typer.Option("--port", "-p", envvar="UMBEL_PORT", min=1, max=65535, help="Of the HTTP server.")]
Host = Annotated[str, typer.Option("--host", envvar="UMBEL_HOST", help="The address the HTTP server listens on.")]
Workers = Annotated[int, typer.Option("-w", "--workers", min=1, max=1000, help="How many Spark tasks run at once.")]
Master = Annotated[
    str | None,
    typer.Option("--master", envvar="UMBEL_MASTER", help="URL of a Spark cluster.", show_default="this machine alone"),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
Servers = Annotated[int, typer.Option("--servers", min=1, help="How many server processes answer requests.")]
Url = Annotated[str, typer.Option("--url", envvar="UMBEL_URL", help="Where the server is.")]
Branch = Annotated[str, typer.Option("--branch", envvar="UMBEL_BRANCH", help="Whose definitions and data.")]
Env = Annotated[
    str | None,
    typer.Option("--env", help="Selects sources, sinks, pipelines and extractors; all when left out."),
]
Shards = Annotated[
    int | None,
    typer.Option(
        "--shards", min=1, help="In how many parts state is kept; fixed at the first start.", show_default="4"
    ),
]


def _without_password(context: typer.Context, option: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse a URL with a password on the command line.

    Every user of the machine can read the arguments of a process.
    """
    from umbel.state.passwords import passwords_of, remember_all

    if value is None or not passwords_of(value):
        return value
    remember_all(value)
    source = context.get_parameter_source(option.name or "")
    if source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter(
            f"a URL with a password is given as an environment variable, {option.envvar}: "
            "everybody on this machine can read the arguments of its processes"
        )
    return value


Catalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        envvar="UMBEL_CATALOG",
        help="URL of the catalog's database; by UMBEL_CATALOG where it has a password.",
        show_default="SQLite in --dir",
        callback=_without_password,
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="UMBEL_STORE",
        help="URL of the store; by UMBEL_STORE where it has a password.",
        show_default="files in --dir",
        callback=_without_password,
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        envvar="UMBEL_ALLOWED_HOSTS",
        help="A name by which requests may address the server, besides localhost; can be repeated.",
        show_default=False,
    ),
]
RequireToken = Annotated[
    bool, typer.Option("--require-token", envvar="UMBEL_REQUIRE_TOKEN", help="Let nobody read or log without a token.")
]
BehindProxy = Annotated[
    bool,
    typer.Option("--behind-proxy", envvar="UMBEL_BEHIND_PROXY", help="A reverse proxy with TLS passes requests on."),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", envvar="UMBEL_TLS_CERT", help="The file with the certificate.", exists=True, dir_okay=False
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", envvar="UMBEL_TLS_KEY", help="The file with the key of it.", exists=True, dir_okay=False),
]


def policy(
    host: str,
    allowed_hosts: list[str] | None,
    require_token: bool,
    behind_proxy: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    *,
    queries_only: bool = False,
) -> Policy:
    """Return the access policy of a server from its options."""
    from umbel.serving.policy import Policy

    check_tls(tls_cert, tls_key)
    cert, key = (None if each is None else str(each.absolute()) for each in (tls_cert, tls_key))
    return Policy(host, tuple(allowed_hosts or ()), require_token, behind_proxy, cert, key, queries_only)


def check_tls(cert: Path | None, key: Path | None) -> None:
    """Refuse a certificate and a key that no server can use.

    Raises:
        InvalidValue: they are no PEM files, do not belong together, or need a password.
    """
    if cert is None or key is None:
        return
    import ssl

    from umbel.errors import InvalidValue

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=str)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "reason", None) or "they cannot be read").replace("_", " ").lower()
        raise InvalidValue(
            f"--tls-cert {cert}, --tls-key {key}: TLS cannot use them: {reason}",
            hint="both are PEM files, the key is that of the certificate, and has no password",
        ) from error


QueriesOnly = Annotated[
    bool, typer.Option("--queries-only", help="Answer online queries from catalog and store alone, on any machine.")
]
Accuracy = Annotated[
    float | None,
    typer.Option(
        "--accuracy",
        envvar="UMBEL_ACCURACY",
        help="By what share of a continuous window its beginning may be off for busy keys; fixed at the first start.",
        show_default="0.01",
    ),
]
ExactInstants = Annotated[
    int | None,
    typer.Option(
        "--exact-instants",
        envvar="UMBEL_EXACT_INSTANTS",
        min=1,
        help="How many instants of a key are kept apart in each such share; fixed at the first start.",
        show_default="8",
    ),
]


def open_deployment(
    directory: Path,
    catalog: str | None = None,
    store: str | None = None,
    shards: int | None = None,
    accuracy: float | None = None,
    exact_instants: int | None = None,
) -> Deployment:
    """Return the deployment named by the options, with its store opened.

    Raises:
        InvalidValue: the folder, the catalog or the store cannot be used.
    """
    from umbel.errors import InvalidValue
    from umbel.runtime.deployment import Deployment
    from umbel.state.memory import MemoryStore

    found = Deployment.at(
        directory,
        catalog_url=catalog,
        store_url=store,
        shards=shards,
        accuracy=accuracy,
        exact_instants=exact_instants,
    )
    if isinstance(found.store, MemoryStore):
        raise InvalidValue(
            f"--store {store}: such a store is of one process, and umbel runs several",
            hint="leave --store out, or name a folder: file:///path",
        )
    return found


def existing_deployment(directory: Path, catalog: str | None = None, store: str | None = None) -> Deployment:
    """Return the deployment named by the options; make none where there is none.

    Raises:
        InvalidValue: there is none, or it cannot be used.
        Damaged: its catalog is gone.
    """
    from umbel.errors import InvalidValue
    from umbel.runtime.home import check_catalog

    folder = directory.absolute()
    if catalog is None and not (folder / "catalog.db").exists():
        check_catalog(folder, None)
        raise InvalidValue(
            f"there is no deployment of umbel in {directory}", hint="name the folder of umbel run: --dir, or UMBEL_DIR"
        )
    return open_deployment(directory, catalog, store)
