"""Reading a collection of MongoDB by a cursor field, with one find per `every`.

    db.collection.find({cursor: {$gte: low}}).sort({cursor: 1})

MongoDB compares values of one bracket of types: the bracket that most documents have is read. A second find, by the index as
well, looks for documents whose cursor is of another one, null or missing: each becomes a dead letter, up to a limit.

Documents are staged as they came, in bytes of BSON, and converted where a split is opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Any

import bson
import polars as pl

from umbel.connectors.mongo.brackets import (
    BRACKETS,
    CODEC,
    STRING,
    Bracket,
    parsed,
    type_name,
    value_at,
    written,
)
from umbel.connectors.mongo.server import MOST_PER_BATCH, MongoServer
from umbel.connectors.mongo.values import as_json, columns_of, raw_rows, read, read_all, shown, split
from umbel.connectors.polled_cursor import PatientCursor, Poll
from umbel.connectors.polling import Poller
from umbel.connectors.splits import Split
from umbel.connectors.staged_source import IDENTITY
from umbel.connectors.staging import StagedPart
from umbel.definitions.arguments import ReadOptions
from umbel.errors import InvalidValue, did_you_mean
from umbel.formats.raw_batch import RawBatch
from umbel.types.dtype import DType

log = logging.getLogger("umbel.work")

DOCUMENT = "_document"
"""The column of staged rows with the document in bytes of BSON."""
AT_ONCE = 65_536
COUNTED = 10_000
"""Documents up to which those of a bracket are counted; a smaller collection needs no index."""
MOST_STRAYS = 100
"""Documents with a cursor of another bracket that become dead letters, each."""
_ALLOWED = "a date, timestamp, ObjectId, number or text that grows with every change of a document"


@dataclass(frozen=True)
class MongoView:
    """The collection as a read finds it.

    Args:
        collection: of the driver.
        facts: about it, as the server lists them.
        begun: the time before the read, in seconds.
        bracket: of the cursors, None if no document has one.
    """

    collection: Any
    facts: Mapping[str, Any]
    begun: float = field(default_factory=time.time)
    bracket: Bracket | None = None

    @property
    def mark(self) -> Poll:
        """The time before the read."""
        return {"begun": self.begun}

    @property
    def earlier(self) -> None:
        """Nothing."""

    @property
    def identity(self) -> str | None:
        """The collection's own id, which another one of its name does not have."""
        found = self.facts.get("info", {}).get("uuid")
        return None if found is None else bytes(found).hex()


@dataclass(frozen=True)
class MongoStart:
    """The cursor from which on documents are read.

    Args:
        bracket: of the cursors, None if no document has one.
        high: the highest cursor read so far, None for none.
        low: the cursor that the read begins at, None for the beginning.
        part: the last part staged when `low` was the highest cursor; -1 for times.
    """

    bracket: Bracket | None
    high: str | None
    low: Any = None
    part: int = -1

    def reaches(self, part: StagedPart) -> bool:
        """Return whether a part may have documents that are read again; all later parts may."""
        if self.low is None or self.bracket is None or part.number > self.part >= 0:
            return True
        return bool(self.bracket.order(parsed(part.facts["high"])) >= self.bracket.order(self.low))


@dataclass(frozen=True)
class MongoCursor(PatientCursor):
    """A collection read by a cursor field.

    Args:
        server: the server and the login.
        table: the name of the collection.
        options: of the source.
        cursor: the path of the field.
    """

    server: MongoServer
    table: str
    options: ReadOptions
    cursor: str

    @property
    def title(self) -> str:
        return f"{self.server.title}, collection '{self.table}'"

    # ---- what is there ---------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[MongoView]:
        with self._found() as view:
            name = self.stage.state().get("bracket")
            bracket = BRACKETS[name] if name else self._bracket_of(view)
            if bracket is not None and not name:
                self.note(bracket=bracket.name)
            self._check_identity(view)
            yield MongoView(view.collection, view.facts, view.begun, bracket)

    @contextmanager
    def _found(self) -> Iterator[MongoView]:
        """Yield the collection; refuse one that does not exist."""
        from pymongo.read_concern import ReadConcern

        with self.server.connect() as database:
            listed = database.list_collections(filter={"name": self.table})
            facts = next((each for each in listed if each["name"] == self.table), None)
            if facts is None:
                others = sorted(database.list_collection_names())
                raise InvalidValue(
                    f"{self.title}: database '{database.name}' has no such collection{did_you_mean(self.table, others)}",
                    hint=f'correct the name, or db.createCollection("{self.table}")',
                )
            # what a majority of servers has is not undone by a change of the primary
            concern = ReadConcern("majority")
            yield MongoView(database.get_collection(self.table, codec_options=CODEC, read_concern=concern), facts)

    def _bracket_of(self, view: MongoView) -> Bracket | None:
        """Return the bracket of most cursors."""

        def count(each: Bracket) -> int:
            return int(view.collection.count_documents({self.cursor: each.condition()}, limit=COUNTED))

        counts = {each: count(each) for each in BRACKETS.values()}
        found = max(BRACKETS.values(), key=counts.__getitem__)
        if not counts[found]:
            return None
        if found is STRING and view.facts.get("options", {}).get("collation"):
            raise InvalidValue(
                f"{self.title}: '{self.cursor}' is text, and the collection has a collation, in whose order no read can resume",
                hint="take a date, a number or an ObjectId as the cursor",
            )
        return found

    def _check_identity(self, view: MongoView) -> None:
        """Report another collection of the same name."""
        known = self.stage.state().get("collection")
        if known is not None and view.identity is not None and known != view.identity:
            log.error("%s: it was made anew", self.title)
            self.report(
                InvalidValue(
                    f"{self.title}: it was dropped and made anew, or another one was renamed to it: documents whose "
                    f"'{self.cursor}' is below the highest one read are not read",
                    hint="commit the dataset as a new version, to read the collection from its beginning",
                )
            )
        if view.identity != known and view.identity is not None:
            self.note(collection=view.identity)

    def examine(self) -> None:
        with self._found() as view:
            first = view.collection.find_one({}, self._fields)
            if first is not None and self._bracket_of(view) is None:
                value = value_at(first, self.cursor)
                shown = did_you_mean(self.cursor, list(first)) if type_name(value) == "missing" else ""
                raise InvalidValue(
                    f"{self.title}: no document has a '{self.cursor}' that can be a cursor; that of the first one is "
                    f"{type_name(value)}{shown}",
                    hint=f"a cursor is {_ALLOWED}",
                )
            self._check_index(view)

    def _check_index(self, view: MongoView) -> None:
        if view.facts.get("type", "collection") != "collection":
            return  # a view has the indexes of others
        usual = view.facts.get("options", {}).get("collation")
        for each in view.collection.list_indexes():
            first, direction = next(iter(each["key"].items()))
            is_partial = "partialFilterExpression" in each or each.get("hidden") or each.get("collation") != usual
            if first == self.cursor and isinstance(direction, int | float) and not is_partial:
                return
        if view.collection.estimated_document_count() > COUNTED:
            raise InvalidValue(
                f"{self.title}: no index begins with '{self.cursor}', so that each read would go through all documents",
                hint=f'db.getCollection("{self.table}").createIndex({{"{self.cursor}": 1}})',
            )

    # ---- reading ---------------------------------------------------------------------------------------------------

    def start(self, view: MongoView, polls: Sequence[Poll]) -> MongoStart:
        last = self.last_data()
        high = last.facts["high"] if last else None
        if view.bracket is None or high is None:
            return MongoStart(view.bracket, high)
        if view.bracket.before is not None:
            return MongoStart(view.bracket, high, view.bracket.before(parsed(high), self.options.disorder))
        closed = self.closed(polls) if polls else None
        if closed is None or polls[closed]["high"] is None:
            return MongoStart(view.bracket, high)
        return MongoStart(view.bracket, high, parsed(polls[closed]["high"]), polls[closed]["part"])

    def copy(self, view: MongoView, start: MongoStart, poller: Poller) -> bool:
        known = _Strays(self)
        if start.bracket is not None:
            seen, high = self.seen(start), None if start.high is None else parsed(start.high)
            found = view.collection.find_raw_batches(
                {self.cursor: start.bracket.condition(start.low)},
                self._fields,
                sort=[(self.cursor, 1)],
                batch_size=MOST_PER_BATCH,
            )
            for data in found:
                rows, strays, high = self._sorted_out(data, start.bracket, high)
                known.add(strays, start.bracket)
                fresh = seen.fresh(rows)
                if fresh.height:
                    self.stage.append(fresh, {"high": written(high), "bracket": start.bracket.name})
                if not self.has_room(poller):
                    return False
        if not known.is_full:
            others = {} if start.bracket is None else start.bracket.strays(self.cursor)
            batches = view.collection.find_raw_batches(others, self._fields, limit=MOST_STRAYS + 1)
            known.add([each for data in batches for each in split(data)], start.bracket)
        return True

    @property
    def _fields(self) -> Mapping[str, int] | None:
        """The projection: the requested fields, the cursor and `_id`."""
        if self.options.columns is None:
            return None
        names = {"_id", *self.options.columns, self.cursor}
        return {name: 1 for name in sorted(names) if not any(name.startswith(f"{other}.") for other in names)}

    def _sorted_out(self, data: bytes, bracket: Bracket, high: Any) -> tuple[pl.DataFrame, list[bytes], Any]:
        """Return the documents of a bracket, the others, and the highest cursor so far."""
        documents, strays, digests = list[bytes](), list[bytes](), list[int]()
        raws = list(split(data))
        for raw, document in zip(raws, read_all(data, raws), strict=True):
            value = value_at(document, self.cursor)
            if not bracket.has(value):
                strays.append(raw)
                continue
            documents.append(raw)
            digests.append(self._digest(raw, document, value))
            if high is None or bracket.order(value) > bracket.order(high):
                high = value
        frame = {DOCUMENT: pl.Series(documents, dtype=pl.Binary), IDENTITY: pl.Series(digests, dtype=pl.UInt64)}
        return pl.DataFrame(frame), strays, high

    def _digest(self, raw: bytes, document: Mapping[str, Any], value: Any) -> int:
        """Return a digest that tells a row from all others.

        A keyless dataset takes a document once for each value of the cursor; a keyed one whenever it differs.
        """
        content = raw if self.options.is_keyed else bson.encode({"_id": document.get("_id"), "cursor": value})
        return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")

    # ---- splits ----------------------------------------------------------------------------------------------------

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the documents of a part."""
        part = self.stage.part(int(split["part"]))
        if "report" in part.facts:
            yield self.report_of(part)
            return
        documents = self.stage.read(part.number, [DOCUMENT])[DOCUMENT]
        names = [*requested, *(() if exact else self.options.references)]
        for start in range(0, len(documents), AT_ONCE):
            chosen = documents.slice(start, AT_ONCE).to_list()
            yield self._batch(chosen, part, start, names, exact=exact)

    def _batch(
        self, documents: Sequence[bytes | None], part: StagedPart, start: int, names: Sequence[str], *, exact: bool
    ) -> RawBatch:
        refuse = self._refusal(part.facts["strays"]) if "strays" in part.facts else lambda _: None
        raw, found = raw_rows(documents, names, refuse, exact=exact)

        def where(row: int) -> str:
            return f"{self.title}, _id {shown(found[row].get('_id'))}"

        return RawBatch(raw, part.first + start, where, lambda row: as_json(found[row]))

    def _refusal(self, bracket: str | None) -> Any:
        def reason(document: Any) -> str:
            kind = type_name(value_at(document, self.cursor))
            if bracket is None:
                return f"the cursor '{self.cursor}' is {kind}, which cannot be one: a cursor is {_ALLOWED}"
            return (
                f"the cursor '{self.cursor}' is {kind}, and those of other documents are {bracket}: a find from one on does "
                f"not return it; set it to a present value of that type"
            )

        return reason

    def fields_of(self, staged: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        if DOCUMENT not in staged.columns:
            return staged
        return columns_of(staged[DOCUMENT].to_list(), names)


class _Strays:
    """The documents whose cursor is of another bracket.

    Each is staged once; after a crash it may be twice.

    Args:
        source: the source.
    """

    def __init__(self, source: MongoCursor) -> None:
        self._source = source
        self._known: list[int] = list(source.stage.state().get("strays", []))

    @property
    def is_full(self) -> bool:
        """True if further ones are not looked for."""
        return len(self._known) > MOST_STRAYS

    def add(self, documents: Sequence[bytes], bracket: Bracket | None) -> None:
        """Stage the new ones among some documents."""
        digests = {int.from_bytes(blake2b(each, digest_size=6).digest(), "little"): each for each in documents}
        fresh = dict(islice(((key, raw) for key, raw in digests.items() if key not in {*self._known}), MOST_STRAYS + 1))
        if not fresh or self.is_full:
            return
        room = MOST_STRAYS - len(self._known)
        chosen = list(fresh.values())[:room]
        if chosen:
            rows = pl.DataFrame(
                {DOCUMENT: pl.Series(chosen, dtype=pl.Binary), IDENTITY: pl.Series([0] * len(chosen), dtype=pl.UInt64)}
            )
            self._source.stage.append(rows, {"strays": None if bracket is None else bracket.name})
        if len(fresh) > room:
            self._report(next(islice(fresh.values(), room, None)), bracket)
        self._known += list(fresh)[: room + 1]
        self._source.note(strays=self._known)

    def _report(self, raw: bytes, bracket: Bracket | None) -> None:
        kind = type_name(value_at(read(raw), self._source.cursor))
        expected = "of no type that can be one" if bracket is None else f"of another type than {bracket.name}"
        self._source.report(
            InvalidValue(
                f"{self._source.title}: more than {MOST_STRAYS} documents have a cursor '{self._source.cursor}' {expected}, as "
                f"{kind}: they are not read, and no more of them become dead letters",
                hint="convert them, and commit the dataset as a new version",
            )
        )
