"""Passwords in catalog and store URLs: excluded from process arguments, logs and errors.

A process passes URLs to its child processes in environment variables, which only the same account can read; arguments can be read
by every user of the machine.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from urllib.parse import unquote

VARIABLE = "UMBEL_URL_"
HIDDEN = "***"
_MARK = "env:"
_PARAMETERS = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_CREDENTIALS = re.compile(r"^[^:/?#]+://(?P<credentials>.*)@")
"""Everything up to the last `@`: a password that was not quoted may contain any character."""

_SHORTEST = 4
"""Characters of the shortest password that is redacted in texts: shorter ones would match everywhere."""

_SHORTEST_PATH = 12
"""Characters of the shortest path of a secret URL that is redacted on its own."""

_LIBRARIES = ("alembic", "httpcore", "httpx", "py4j")
"""Libraries that log what they do: of HTTP each request, with its URL."""

_known: set[str] = set()


def passwords_of(url: str) -> list[str]:
    """Return the passwords in a URL, in the form written there.

    >>> passwords_of("postgresql+psycopg://me:p%40ss@db/umbel?sslpassword=x1&application_name=umbel")
    ['p%40ss', 'x1']
    """
    before, _, query = url.partition("?")
    found = _CREDENTIALS.match(before) or _CREDENTIALS.match(url)
    password = found["credentials"].partition(":")[2] if found else ""
    written = (part.partition("=") for part in query.split("&"))
    named = [value for name, _, value in written if _PARAMETERS.search(name)]
    return [each for each in (password, *named) if each]


def masked(url: str) -> str:
    """Return a URL with its passwords masked.

    >>> masked("redis://:secret@cache:6379/0")
    'redis://:***@cache:6379/0'
    """
    for password in sorted(passwords_of(url), key=len, reverse=True):
        url = re.sub(rf"(?<=[:=]){re.escape(password)}(?=@|&|$)", HIDDEN, url)
    return url


def remember(text: str) -> None:
    """Register a password for `redacted`."""
    _known.update(each for each in (text, unquote(text)) if len(each) >= _SHORTEST)


def remember_all(url: str) -> None:
    """Register the passwords in a URL for `redacted`."""
    for password in passwords_of(url):
        remember(password)


def remember_secret(text: str) -> None:
    """Register a secret for `redacted`.

    Of a URL also its passwords and its path, which may be a token.
    """
    remember(text)
    remember_all(text)
    _, separator, rest = text.partition("://")
    path = rest.partition("?")[0].partition("/")[2]
    if separator and len(path) >= _SHORTEST_PATH:
        remember(path)


def redacted(text: str) -> str:
    """Return a text with the passwords registered in this process masked."""
    for password in sorted(_known, key=len, reverse=True):
        text = text.replace(password, HIDDEN)
    return text


def handed_on(url: str) -> str:
    """Return a URL in a form safe for process arguments; `received` restores it.

    A URL with passwords goes into the environment of this process, in a variable with a random name.
    """
    if not passwords_of(url):
        return url
    remember_all(url)
    known = (name for name, value in os.environ.items() if name.startswith(VARIABLE) and value == url)
    name = next(known, None) or VARIABLE + secrets.token_hex(8)
    os.environ[name] = url
    return _MARK + name


def received(text: str) -> str:
    """Return the URL passed by the parent process with `handed_on`."""
    url = os.environ[text.removeprefix(_MARK)] if text.startswith(_MARK) else text
    remember_all(url)
    return url


class RedactingFormatter(logging.Formatter):
    """Log formatter that masks the passwords registered in this process."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text, including its traceback, with passwords masked."""
        return redacted(super().format(record))


def log_redacted(level: int) -> None:
    """Log to standard error with passwords masked, of libraries only warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
