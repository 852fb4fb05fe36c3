"""Texts from outside are stored whatever is in them, the same in each database; names that are too long are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from umbel.catalog.audit import Actor, AuditLog
from umbel.catalog.catalog import Catalog, DeadLetter
from umbel.catalog.stored_text import StoredText
from umbel.catalog.tables import CatalogRow
from umbel.catalog.vault import Vault
from umbel.catalog.verdicts import Verdicts
from umbel.client.names import LONGEST_BRANCH, check_new_branch
from umbel.definitions.names import LONGEST_SECRET
from umbel.errors import InvalidValue, UnknownName

CJK = "\u6f22"
OWN = {
    "audit.action", "batches.job", "backfills.owner", "counters.dataset", "counters.job", "counters.name",
    "dead_letters.origin", "definition_pieces.digest", "erasures.branch", "erasures.dataset", "erasures.identity",
    "events.level", "events.process", "jobs.name", "landmarks.source", "landmarks.text", "offline_jobs.branch",
    "offline_jobs.id", "offline_jobs.status", "removals.log", "removals.owner", "settings.name", "suspects.function",
    "tokens.id", "tokens.role", "verdicts.function", "verdicts.row",
}  # fmt: skip
"""Columns of names that umbel makes, or that are checked before: of datasets and fields, 200 bytes."""


@pytest.mark.parametrize("text", [CJK * 1100, f"{'f' * 1100}\0", "\ud800", "a\0b", CJK * 342])
def test_a_dead_letter_is_stored_whatever_its_texts(catalog: Catalog, text: str) -> None:
    letters = [DeadLetter("D", 0, f"{text}{end}", f"no {text}", b"{", 1, f"{text}{end}") for end in (1, 2, 2)]
    for _ in range(2):
        catalog.bury("live", 1, {}, letters)
    found = catalog.dead_letters("D")
    assert len({each.position for each in found}) == len(found) == 2
    assert all(len(each.position.encode()) <= 1024 and len(each.field.encode()) <= 256 for each in found)
    assert all("\0" not in f"{each.position}{each.field}{each.reason}" for each in found)
    assert catalog.dead_letters("\0") == []


@pytest.mark.parametrize("text", ["a\0b", "\ud800", CJK * 3000])
def test_texts_are_stored_whatever_is_in_them(catalog: Catalog, text: str) -> None:
    catalog.commit("main", text, b"1")
    catalog.record_event("work", "error", text)
    Verdicts(catalog).reject("f", {"row": text})
    audit = AuditLog(catalog)
    audit.end(audit.begin(Actor(text, text), "commit", text), text)
    stored = catalog.commits()[0].message, catalog.events()[0].text, Verdicts(catalog).rows("f")["row"]
    shown = text.replace("\0", "\\x00").replace("\ud800", "\\ud800")
    assert stored == (shown, shown, shown)
    assert catalog.heads(1) == {"main": 1}
    with pytest.raises(UnknownName):
        catalog.secret(text)


def test_a_name_that_is_too_long_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    vault = Vault(catalog, tmp_path / "key")
    vault.add(CJK * LONGEST_SECRET, "v")
    assert vault.get(CJK * LONGEST_SECRET) == "v"
    with pytest.raises(InvalidValue, match="cannot be the name of a secret"):
        vault.add("s" * (LONGEST_SECRET + 1), "v")
    check_new_branch("b" * LONGEST_BRANCH)
    catalog.commit("b" * LONGEST_BRANCH, "m", b"1")
    with pytest.raises(InvalidValue, match="has 201 characters, and may have 200"):
        check_new_branch("b" * (LONGEST_BRANCH + 1))


def test_each_column_of_texts_from_outside_takes_any() -> None:
    columns = {
        f"{name}.{column.name}"
        for name, table in CatalogRow.metadata.tables.items()
        for column in table.columns
        if isinstance(column.type, sa.String) and not isinstance(column.type, StoredText)
    }
    assert columns == OWN
