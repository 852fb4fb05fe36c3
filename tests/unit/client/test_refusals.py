"""The errors a client raises for those that a server answers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.house.test_errors import codes
from umbel.client.connection import refusal
from umbel.client.response import Response
from umbel.errors import Overloaded, UmbelError

OWN = {"error", "request-failed", "unreachable"}
"""Codes that no server answers: the root, and what a client says of its own."""
PROGRAM = """
import json, sys
for module in sys.argv[1:]:
    __import__(module)
from umbel.client.connection import _kinds
print(json.dumps({code: f"{kind.__module__}.{kind.__name__}" for code, kind in sorted(_kinds().items())}))
"""


def kinds(*imported: str) -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *imported], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_errors_are_the_same_whatever_is_imported() -> None:
    alone = kinds()
    assert kinds("umbel.serving.app", "umbel.testing") == alone
    assert alone.keys() == codes().keys() - OWN


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(401, "unauthenticated", PermissionError), (503, "backfilling", UmbelError), (409, "conflict", UmbelError)],
)
def test_a_refusal_is_of_the_class_that_its_code_names(status: int, code: str, kind: type[Exception]) -> None:
    error = refusal(Response.of(status, {"code": code, "message": "no", "hint": "wait"}))
    assert (error.code, error.hint, isinstance(error, kind)) == (code, "wait", True)
    assert error.message == f"the server answered {status}: no"


def test_too_many_requests_are_overload() -> None:
    assert isinstance(refusal(Response.of(429, {"code": "overloaded", "message": "full"})), Overloaded)
