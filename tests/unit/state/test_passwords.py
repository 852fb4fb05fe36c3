"""Passwords in URLs: found however they are written, and handed on without being shown."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path

import pytest

from umbel.catalog.engine import migrated
from umbel.connectors.credentials import resolved
from umbel.definitions.secret import Secret
from umbel.errors import InvalidValue, UmbelError
from umbel.runtime.deployment import Deployment
from umbel.state import passwords
from umbel.state.passwords import RedactingFormatter, handed_on, log_redacted, masked, passwords_of, received, redacted
from umbel.state.urls import open_store

URLS = [
    "postgresql+psycopg://me:planted@host/db",
    "postgresql+psycopg://me:pl@nted:p/a?ss#w@host:5432/db",
    "postgresql+psycopg://:planted@host",
    "postgresql+psycopg://me@host/db?password=planted&x=1",
    "postgresql://me:planted@host/db?sslpassword=second",
    "redis://:pl%40nted@host",
    "redis://me:planted@[host",
]


@pytest.mark.parametrize("url", URLS)
def test_passwords_are_masked(url: str) -> None:
    found = passwords_of(url)
    assert found
    assert not any(each in masked(url) for each in found)
    assert "host" in masked(url)


@pytest.mark.parametrize("url", ["sqlite:////a/b.db", "file:///a?flush_bytes=1", "postgresql://me@host/db", "", "x"])
def test_what_has_none_stays(url: str) -> None:
    assert (passwords_of(url), masked(url), handed_on(url), received(url)) == ([], url, url, url)


@pytest.mark.parametrize("url", URLS)
def test_errors_about_urls_have_no_passwords(url: str) -> None:
    for action in (lambda: migrated(url), lambda: open_store(url, 1)):
        with pytest.raises((UmbelError, ImportError)) as caught:
            action()
        chain, error = "", caught.value
        while error is not None:
            chain += f"{type(error).__name__} {error} {error.args}"
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        assert not any(each in chain for each in passwords_of(url)), chain


def test_a_url_that_cannot_be_read_is_reported_masked() -> None:
    with pytest.raises(InvalidValue, match=r"postgresql\+psycopg://me:\*\*\*@host"):
        migrated("postgresql+psycopg://me:a:b@host:port/db")


def test_a_deployment_hands_passwords_on_by_the_environment(tmp_path: Path) -> None:
    url = "postgresql+psycopg://me:planted@host/db"
    place = Deployment(tmp_path, url, f"file://{tmp_path}", 1)
    encoded = place.encode()
    assert "planted" not in encoded + repr(place)
    assert Deployment.decode(encoded) == place
    assert encoded == Deployment(tmp_path, url, f"file://{tmp_path}", 1).encode()
    names = [name for name, value in os.environ.items() if value == url]
    assert len(names) == 1
    del os.environ[names[0]]


def test_logs_have_no_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_known", set())
    handed_on("redis://:pl%40nted@host")
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(RedactingFormatter("%(message)s"))
    try:
        raise ValueError("it was pl@nted")
    except ValueError:
        record = logging.LogRecord("x", 40, "f", 1, "to %s", ("redis://:pl%40nted@host",), __import__("sys").exc_info())
    report = handler.format(record)
    assert "planted" not in report
    assert "pl@nted" not in report
    assert "pl%40nted" not in report
    assert redacted("abc") == "abc"


def test_resolved_secrets_are_masked_in_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client of HTTP sinks logs each request with its URL, and the end of the worker's log is in `/readyz?deep`."""
    monkeypatch.setattr(passwords, "_known", set())
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    for name in ("httpx", "umbel"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    monkeypatch.setenv("HOOK", "https://me:planted@example.com/hooks/planted-token")
    url = resolved(Secret(arn="env:HOOK"))
    log_redacted(logging.INFO)
    logging.getLogger("httpx").info("HTTP Request: POST %s/orders", url)
    logging.getLogger("umbel").info("to %s/orders", url)
    logging.getLogger("umbel").info("refused: https://example.com/hooks/planted-token/orders")
    logged = capsys.readouterr().err
    assert "HTTP Request" not in logged
    assert logged.count("refused") == 1
    assert "planted" not in logged
