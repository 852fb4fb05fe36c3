"""Clients of BigQuery, descriptions of its tables, and its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from umbel.connectors.bigquery.columns import described
from umbel.connectors.credentials import resolved
from umbel.connectors.sql.server import TableDescription
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

LONGEST, PATIENCE = 3600, 60
"""Seconds after which a query is given up, and after which the attempts at one request are."""
SCOPE = "https://www.googleapis.com/auth/bigquery"
_KEY = "service_account_key= is the JSON that the console gives for a key of the service account"
_RIGHTS = (
    "grant the service account roles/bigquery.jobUser on the project, and roles/bigquery.dataViewer on the dataset"
)
_NAMES = "correct project_id= and dataset_id= of the source, or the table's name: .table(name), .table('dataset.name')"
_SORT = (
    "the result is too large to be sorted at once: read a view of fewer rows first, and the table by a new version of the "
    "dataset later; or export the rows that exist to files, and read these"
)
_LATER = frozenset(
    (
        "rateLimitExceeded",
        "quotaExceeded",
        "backendError",
        "internalError",
        "jobBackendError",
        "jobInternalError",
        "stopped",
    )
)
"""Reasons after which another attempt may succeed."""


@dataclass(frozen=True)
class BigQueryServer:
    """A dataset of BigQuery and a key.

    Args:
        title: of the source, for messages.
        project: that pays for queries.
        dataset: of the tables.
        key: of the service account; never shown.
    """

    title: str
    project: str
    dataset: str
    key: Mapping[str, Any] | Secret = field(repr=False)

    def revealed(self) -> Self:
        """Return the same with its key resolved, for a process without the deployment's secrets."""
        return replace(self, key=self._information())

    @contextmanager
    def connect(self, **options: Any) -> Iterator[Any]:
        """Return a client for a block; errors of the server in it become umbel's.

        Raises:
            Transient: another attempt may succeed.
            InvalidValue: the key, a table, a column or a right is wrong.
        """
        client = driver()
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2.service_account import Credentials
        from requests.exceptions import RequestException

        information = self._information()
        try:
            credentials = Credentials.from_service_account_info(information, scopes=[SCOPE])
        except (ValueError, TypeError, AttributeError, GoogleAuthError):  # whose texts may have parts of the key
            raise InvalidValue(f"{self.title}: the key of the service account is none", hint=_KEY) from None
        try:
            with client.Client(project=self.project, credentials=credentials, **options) as connection:
                yield connection
        except exceptions.RetryError as error:
            raise self._translated(error.cause) from None
        except (exceptions.GoogleAPIError, GoogleAuthError, RequestException) as error:
            raise self._translated(error) from None

    def field_of(self, cursor: str, fields: Sequence[str] | None) -> str:
        """Return the cursor as it is requested: upper and lower case are the same."""
        return next((name for name in fields or () if name.lower() == cursor.lower()), cursor)

    def _information(self) -> Mapping[str, Any]:
        if not isinstance(self.key, Secret):
            return self.key
        try:
            found = json.loads(resolved(self.key))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InvalidValue(f"{self.title}: the secret '{self.key.arn}' is no JSON object", hint=_KEY)
        return found

    def _translated(self, error: Any) -> UmbelError:
        from google.auth.exceptions import GoogleAuthError

        if isinstance(error, GoogleAuthError):
            text = (
                f"{self.title}: no token for the service account: {_first(str(error.args[0] if error.args else error))}"
            )
            if error.retryable or type(error).__name__ == "TransportError":
                return Transient(text, hint="see that the token_uri of its key can be reached")
            return InvalidValue(text, hint="make a new key of the service account, and see that the account is active")
        text, reason = f"{self.title}: {_first(getattr(error, 'message', None) or str(error))}", reason_of(error)
        code = getattr(error, "code", None)
        if reason in _LATER or code not in {400, 401, 403, 404}:
            return Transient(text, hint="see that the API of BigQuery can be reached, and the project's quotas")
        if reason in {"resourcesExceeded", "responseTooLarge"}:
            return InvalidValue(text, hint=_SORT)
        return InvalidValue(text, hint={401: _KEY, 403: _RIGHTS, 404: _NAMES}.get(int(code or 0)))


def driver() -> Any:
    """Return the package that speaks to BigQuery.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import google.cloud.bigquery
    except ImportError as error:
        raise PackageError(
            "tables of BigQuery need the package google-cloud-bigquery", hint="pip install 'umbel[bigquery]'"
        ) from error
    return google.cloud.bigquery


def retries() -> Any:
    """Return how requests are tried again."""
    return driver().DEFAULT_RETRY.with_timeout(PATIENCE)


def reason_of(error: Any) -> str:
    """Return the reason of an error in the API's terms, empty for others."""
    found = getattr(error, "errors", None) or [{}]
    return str(found[0].get("reason", "")) if isinstance(found[0], dict) else ""


@dataclass(frozen=True)
class BigQueryDescription(TableDescription):
    """A table as the API describes it.

    Args:
        fields: those of its schema, by their names here.
        location: where its data are, and queries run.
    """

    fields: dict[str, Any]
    location: str | None


def describe(connection: Any, server: BigQueryServer, name: str, fields: Sequence[str]) -> BigQueryDescription:
    """Return the description of a table or a view, which costs nothing.

    Args:
        connection: a client.
        server: the source's.
        name: of the table; with a dataset, or a project and a dataset, for others than the source's.
        fields: the names that columns are requested by.
    """
    parts = [server.project, server.dataset, *name.rsplit(".", 2)][-3:]
    if not all(parts) or any(each in part for part in parts for each in "`\\\n"):
        raise InvalidValue(f"{server.title}: '{name}' is no name of a table", hint="table, or dataset.table")
    reference = driver().DatasetReference(parts[0], parts[1]).table(parts[2])
    found = connection.get_table(reference, retry=retries(), timeout=PATIENCE)
    requested = {each.lower(): each for each in fields}
    there = {requested.get(each.name.lower(), each.name): each for each in found.schema}
    quoted = ".".join(f"`{part}`" for part in parts)
    columns = {each: described(each, inner) for each, inner in there.items()}
    return BigQueryDescription(quoted, columns, there, found.location)


def _first(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300]
