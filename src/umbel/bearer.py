"""Tokens that requests carry in a header."""

from __future__ import annotations

from umbel.errors import InvalidType, InvalidValue


def bearer(token: str, subject: str) -> str:
    r"""Return a token as a header can have it, without the whitespace around it.

    A file that it was read from ends with a newline. The messages of HTTP clients show headers that cannot be sent, and so
    the token; these do not.

    Args:
        token: as declared; may be empty.
        subject: its user, for messages.

    Raises:
        InvalidType: it is no text.
        InvalidValue: it has characters that no header can have.

    >>> bearer("abc\n", "Client")
    'abc'
    """
    declared: object = token
    if not isinstance(declared, str):
        raise InvalidType(f"{subject}: the token must be text, got {type(token).__name__}", hint="pass it as a str")
    found = declared.strip()
    if not found.isascii() or not found.isprintable():
        raise InvalidValue(
            f"{subject}: the token has characters that no header can have",
            hint="copy the whole token again, and nothing else",
        )
    return found
