"""Environments of LMDB: what belongs to one is told from what was cut."""

from __future__ import annotations

import random
from pathlib import Path

from umbel.log.environments import MappedEnvironment

ROUNDS, KEYS = 40, 1500


def test_free_pages_behind_the_end_of_a_file_are_not_missing(tmp_path: Path) -> None:
    chance, environment, before = random.Random(1), MappedEnvironment(tmp_path), list[bytes]()
    for _ in range(ROUNDS):
        keys = [chance.randbytes(16) for _ in range(chance.randrange(KEYS))]
        with environment.writing() as transaction:
            for key in keys:
                transaction.put(key, b"value" * 6)
        with environment.writing() as transaction:
            for key in before:
                transaction.delete(key)
        assert environment.is_current()
        before = keys
    environment.close()
    MappedEnvironment(tmp_path).close()
