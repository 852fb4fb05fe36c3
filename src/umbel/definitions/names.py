"""Names of datasets, fields and sources, as folders and values of the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from umbel.definitions.records import DatasetDefinition
from umbel.errors import ErrorCollector, InvalidValue, UmbelError

ELSEWHERE = ("env:", "file:")
"""Where other secrets are: `Secret(arn="env:NAME")` is never one that the deployment has."""
LONGEST_SECRET = 256
"""Characters of the name of a secret."""
LONGEST_NAME = 200
"""Bytes of a name in UTF-8: a folder of a change log is named by its dataset and a digest, and may have 255."""


def check_secret_name(name: str) -> None:
    """Refuse a text that cannot name a secret of the deployment."""
    if not name.isprintable() or not name.strip() or name.startswith(ELSEWHERE) or len(name) > LONGEST_SECRET:
        raise InvalidValue(
            f"{name!r:.120} cannot be the name of a secret",
            hint=f"1 to {LONGEST_SECRET} printable characters; what begins with {' or '.join(ELSEWHERE)} is elsewhere",
        )


def name_errors(datasets: Mapping[str, DatasetDefinition]) -> Iterator[UmbelError]:
    """Yield the errors of names under which nothing can be stored."""
    for each in datasets.values():
        errors = ErrorCollector("commit", each.location)
        for source in each.sources:
            with errors.noted():
                source.connector.check_names()
        yield from errors.found
        yield from _error(f"the name of dataset '{each.name:.40}…'", each.name, each)
        for name in each.schema.names:
            yield from _error(f"dataset '{each.name:.40}': the name of field '{name:.40}…'", name, each)


def _error(subject: str, name: str, dataset: DatasetDefinition) -> Iterator[InvalidValue]:
    size = len(name.encode())
    if size > LONGEST_NAME:
        message = f"{subject} has {size} bytes, and may have {LONGEST_NAME}"
        yield InvalidValue(message, where=dataset.location, hint="choose a shorter name")
