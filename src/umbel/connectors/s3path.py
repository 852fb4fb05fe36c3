"""The grammar of paths to files: `raw/%Y/%m/**/*.json`."""

from __future__ import annotations

import re

from umbel.errors import InvalidValue

STATIC = re.compile(r"[A-Za-z0-9._=-]+")
WILDCARD = re.compile(r"\*\*?")
EXTENSION = re.compile(r"\*\.[A-Za-z0-9.]+")
_SPECIFIER = "%-?[aAwdbBmyYHIpMSfzZjUWcxXGuV]"
DATED = re.compile(rf"(?:[A-Za-z0-9._=-]|{_SPECIFIER})*{_SPECIFIER}(?:[A-Za-z0-9._=-]|{_SPECIFIER})*")
RULE = (
    "a part is made of letters, digits and ._=-, may have strftime specifiers like %Y, or is * or **; "
    "the last part may be *.ext"
)


def split_path(path: str) -> tuple[str, str]:
    """Return the leading static part of a path, and the rest that has wildcards or dates.

    Raises:
        InvalidValue: a part is none of what the grammar knows; the message quotes it.

    >>> split_path("raw/clicks/%Y/*.json")
    ('raw/clicks/', '%Y/*.json')
    """
    parts = path.removesuffix("/").split("/")
    for place, part in enumerate(parts):
        _check(path, part, is_last=place == len(parts) - 1)
    count = next((place for place, part in enumerate(parts) if not STATIC.fullmatch(part)), len(parts))
    prefix, suffix = "/".join(parts[:count]), "/".join(parts[count:])
    slash = "/" if prefix and (suffix or path.endswith("/")) else ""
    return prefix + slash, suffix


def matcher(suffix: str) -> re.Pattern[str]:
    """Return what matches the rest of a path behind its prefix, as `split_path` cuts it.

    >>> bool(matcher("%Y/**/*.json").fullmatch("2024/a/b/x.json"))
    True
    >>> bool(matcher("%Y/*.json").fullmatch("2024/a/x.json"))
    False
    """
    parts = suffix.split("/")
    return re.compile("".join(_pattern(part, is_last=at == len(parts) - 1) for at, part in enumerate(parts)))


def _pattern(part: str, *, is_last: bool) -> str:
    if part == "**":
        return ".+" if is_last else "(?:[^/]+/)*"
    if EXTENSION.fullmatch(part) or part == "*":
        return "[^/]+" + re.escape(part[1:]) + ("" if is_last else "/")
    pieces = re.split(f"({_SPECIFIER})", part)
    made = "".join(_DIRECTIVES.get(each[-1], _TEXT) if at % 2 else re.escape(each) for at, each in enumerate(pieces))
    return made + ("" if is_last else "/")


_TEXT = "[^/]+?"
_DIRECTIVES = {"Y": r"\d{4}", "j": r"\d{1,3}", "f": r"\d{1,6}", "G": r"\d{4}", "z": r"[+-]\d{4}"} | dict.fromkeys(
    "wdmyHIMSUWuV", r"\d{1,2}"
)


def _check(path: str, part: str, *, is_last: bool) -> None:
    kinds = (STATIC, WILDCARD, DATED, EXTENSION) if is_last else (STATIC, WILDCARD, DATED)
    if not any(kind.fullmatch(part) for kind in kinds):
        raise InvalidValue(f"S3: invalid part '{part}' in path '{path}'", hint=RULE)
