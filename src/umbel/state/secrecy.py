"""Redaction of error messages: passwords, and paths on the server."""

from __future__ import annotations

import re
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import umbel
from umbel.state.passwords import redacted

_SOURCE = re.compile(r"(?:/[^/\s:'\"]+)+/(?=[^/\s:'\"]+\.py\b)")
"""The folder of a Python file."""
_own = set[str]()


def conceal(folder: Path) -> None:
    """Redact a folder of the server in messages from now on."""
    if len(folder.parts) > 1:
        _own.update({str(folder), str(folder.resolve())})
        _pattern.cache_clear()


def concealed(text: str) -> str:
    """Redact passwords and the server's paths from a text."""
    return _SOURCE.sub("", _pattern().sub("…", redacted(text)))


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    python = Path(sys.prefix), Path(sys.base_prefix), Path(umbel.__file__).parent
    roots = [Path.cwd(), Path.home(), Path(tempfile.gettempdir()), *python]
    known = {str(each) for each in roots if len(each.parts) > 1} | _own
    longest_first = sorted(known, key=len, reverse=True)
    return re.compile("(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w.-])")
