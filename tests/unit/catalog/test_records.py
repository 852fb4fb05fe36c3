"""What the catalog notes of one subject stays apart from that of others: actions, erasures, tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from umbel.catalog.audit import BEGUN, DONE, Actor, AuditLog
from umbel.catalog.catalog import Catalog
from umbel.catalog.cloning import clone
from umbel.catalog.tokens import LONGEST_NAME, Role, Tokens
from umbel.errors import InvalidValue, UnknownName


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    yield opened
    opened.close()


def test_an_action_ends_by_itself(catalog: Catalog) -> None:
    log, actor = AuditLog(catalog), Actor("token ci", "peer")
    entries = [log.begin(actor, "commit", f"branch {number}") for number in range(3)]
    log.end(entries[1], DONE, "revision 7")
    with pytest.raises(KeyError), log.recorded("erase", "D", actor):
        raise KeyError
    with pytest.raises(UnknownName), log.recorded("erase", "E", actor):
        raise UnknownName("no")
    with log.recorded("erase", "F", actor):
        pass
    assert [(each.subject, each.outcome) for each in log.entries()] == [
        ("F", DONE),
        ("E", f"failed: {UnknownName.code}"),
        ("D", "failed: KeyError"),
        ("branch 2", BEGUN),
        ("revision 7", DONE),
        ("branch 0", BEGUN),
    ]
    assert [each.subject for each in log.entries(2)] == ["F", "E"]


def test_erasures_are_those_of_a_branch_since_it_began(catalog: Catalog) -> None:
    for branch in ("main", "dev"):
        catalog.commit(branch, "", b"1")
    first = catalog.erase("main", "D", ["i", "j"], b"keys")
    other = catalog.erase("dev", "D", ["i"], b"other")
    assert catalog.erasures("main", first - 1) == []
    for until in (first, other):
        assert catalog.erasures("main", until) == [("D", "i", b"keys"), ("D", "j", b"keys")]
    assert catalog.erasures("dev", other) == [("D", "i", b"other")]
    clone(catalog, "copy", "dev")
    assert catalog.erasures("copy", catalog.latest()) == [("D", "i", b"other")]
    removed = catalog.remove("dev")
    assert catalog.erasures("dev", removed - 1) == [("D", "i", b"other")]
    assert catalog.erasures("dev", removed) == []
    catalog.commit("dev", "", b"1")
    last = catalog.erase("dev", "D", ["i"], b"later")
    assert catalog.erasures("dev", last) == [("D", "i", b"later")]
    assert catalog.erasures("main", last) == [("D", "i", b"keys"), ("D", "j", b"keys")]


def test_a_servers_own_token_replaces_the_one_of_its_name_alone(catalog: Catalog) -> None:
    tokens = Tokens(catalog)
    first, other = (tokens.create(name, Role.ADMIN, is_local=True) for name in ("here", "there"))
    ci = tokens.create("ci", Role.READER)
    second = tokens.create("here", Role.ADMIN, is_local=True)
    assert [each and each.name for each in map(tokens.verified, (first, second, other, ci))] == [
        None,
        "here",
        "there",
        "ci",
    ]
    tokens.discard_local("ci")
    tokens.discard_local("here")
    assert {each.name for each in tokens.valid()} == {"there", "ci"}
    with pytest.raises(InvalidValue, match="already"):
        tokens.create("ci", Role.ADMIN)
    tokens.revoke("ci")
    assert tokens.verified(ci) is None
    assert tokens.create("x" * LONGEST_NAME, Role.READER)
    with pytest.raises(InvalidValue, match="printable characters"):
        tokens.create("x" * (LONGEST_NAME + 1), Role.READER)
