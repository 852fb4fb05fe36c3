"""Steps that hide values: hashing and masking."""

from __future__ import annotations

import hashlib
from typing import Any

from umbel.transform.parameters import parameter
from umbel.transform.registry import TransformStep, step
from umbel.transform.values import dump

ALGORITHMS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s", "sha3_256", "sha3_512")


@step
class HashStep(TransformStep):
    """Return the hexadecimal hash of a text; of another value, of its JSON."""

    name = "hash"
    algorithm: str = parameter("The hash function.", default="sha256", choices=ALGORITHMS)
    salt: str = parameter("Put before the text.", default="")

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        text = value.encode() if type(value) is str else dump(value)
        return hashlib.new(self.algorithm, self.salt.encode() + text, usedforsecurity=False).hexdigest()


@step
class MaskStep(TransformStep):
    """Replace all characters of a text but the last by `*`."""

    name = "mask"
    keep: int = parameter("How many characters at the end stay.", default=4)

    def __post_init__(self) -> None:
        if self.keep < 0:
            raise ValueError(f"'keep' must not be negative, found {self.keep}")

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        text = value if type(value) is str else dump(value).decode()
        hidden = max(0, len(text) - self.keep)
        return "*" * hidden + text[hidden:]
