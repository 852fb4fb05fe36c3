"""Committing definitions to a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from umbel.catalog.catalog import changed_since
from umbel.connectors.credentials import provide_vault
from umbel.connectors.sinks import WriteOptions
from umbel.definitions.dependencies import dependency_errors
from umbel.definitions.identities import input_of
from umbel.definitions.positions import resumed
from umbel.definitions.records import DatasetDefinition, Definitions, FeaturesetDefinition, Metadata
from umbel.definitions.serde import dump
from umbel.definitions.versions import version_errors
from umbel.errors import Conflict, ErrorCollector, InvalidValue, Transient, located
from umbel.functions.fingerprint import fingerprint
from umbel.graph.graph import MAIN, Graph
from umbel.runtime.deployment import Deployment
from umbel.runtime.past import PastDatasets
from umbel.runtime.retention import no_drops
from umbel.runtime.sources import open_sources
from umbel.runtime.supported import check_final, check_supported
from umbel.runtime.switching import must_wait, switches
from umbel.runtime.unlogged import check_history


def commit(
    deployment: Deployment,
    definitions: Definitions,
    *,
    branch: str = MAIN,
    message: str = "",
    preview: bool = False,
    incremental: bool = False,
    backfill: bool = True,
    base: int | None = None,
) -> dict[str, Any]:
    """Commit definitions to a branch.

    Args:
        deployment: the deployment.
        definitions: checked; all definitions that the branch is to have.
        branch: the branch.
        message: the commit message.
        preview: only return the difference, commit nothing.
        incremental: the definitions are those in force with some added or replaced; features must not be lost.
        backfill: whether new pipelines may be computed from history.
        base: the branch's revision that an incremental commit was made from; None if unknown.

    Returns:
        The revision, the serving revision, the names of new, changed, removed and unchanged objects, and the `status` of the
        backfill.

    Raises:
        UmbelError: a definition changed without a new version or has an option that would be ignored, or needs a backfill.
        HistoryDropped: new pipelines or sinks need changes that were dropped.
        Conflict: the branch has changed since `base`.
    """
    while True:
        with no_drops(deployment):
            found = propose(
                deployment, definitions, branch=branch, incremental=incremental, backfill=backfill, base=base
            )
            with suppress(Conflict):  # another commit since: this one is checked against that
                head = None if preview else _put(deployment, branch, message, found)
                return {"revision": head, **found.difference, **_serving(deployment, branch)}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit that nothing refuses.

    Args:
        last: the branch's last revision.
        before: the branch's definitions.
        after: those that it is to have.
        difference: the names of new, changed, removed, unchanged and recomputed objects.
        graph: of all branches, after the commit.
    """

    last: int
    before: Definitions
    after: Definitions
    difference: Mapping[str, list[str]]
    graph: Graph


def propose(
    deployment: Deployment,
    definitions: Definitions,
    *,
    branch: str = MAIN,
    incremental: bool = False,
    backfill: bool = True,
    base: int | None = None,
) -> Proposal:
    """Apply all rules of a commit to definitions, and change nothing.

    The arguments and errors are those of `commit`.
    """
    last = _head(deployment, branch, base if incremental else None)
    before = _checked(deployment, branch, definitions, incremental=incremental)
    definitions = _resumed(deployment, branch, definitions)
    difference, graph = _compared(deployment, branch, before, definitions)
    if not backfill and (names := difference["recomputed"]):
        raise InvalidValue(f"datasets {names} would have to be computed from history", hint="backfill=True")
    return Proposal(last, before, definitions, difference, graph)


def _resumed(deployment: Deployment, branch: str, definitions: Definitions) -> Definitions:
    """Return definitions whose sources have the positions of earlier ones."""
    latest = deployment.catalog.latest()
    heads = {each: deployment.definitions(number) for each, number in deployment.catalog.heads(latest).items()}
    own = heads.pop(branch, Definitions({}, {}))
    datasets, before_all = dict(definitions.datasets), PastDatasets(deployment, definitions)
    for name, each in datasets.items():
        if each.sources:
            earlier = _earlier((own, *heads.values()), before_all, each)
            before = own.datasets.get(name)
            before = before if before is not None and before.fingerprint == each.fingerprint else None
            past = () if before is not None else before_all.of(each)
            others, gone = _alike(each, _named(name, heads.values())), _alike(each, past)
            datasets[name] = _fed(resumed(each, earlier), before, others, gone, is_main=branch == MAIN)
    return replace(definitions, datasets=datasets)


def _alike(dataset: DatasetDefinition, among: Iterable[DatasetDefinition]) -> list[DatasetDefinition]:
    return [each for each in among if each.fingerprint == dataset.fingerprint]


def _named(name: str, among: Iterable[Definitions]) -> Iterator[DatasetDefinition]:
    return (each.datasets[name] for each in among if name in each.datasets)


def _fed(
    dataset: DatasetDefinition,
    own: DatasetDefinition | None,
    others: Sequence[DatasetDefinition],
    gone: Sequence[DatasetDefinition],
    *,
    is_main: bool,
) -> DatasetDefinition:
    """Return a dataset with the name of its rows.

    It is that of another branch that reads the same, or its own.

    Args:
        dataset: to be committed.
        own: the same one on its branch; None if it is new there.
        others: the same ones on other branches.
        gone: the same ones of all commits, if it is new.
        is_main: True on the main branch, whose rows stay its own when its sources change.
    """
    read = input_of(dataset)
    shared = next((each.feed for each in (*others, *gone) if input_of(each) == read), None)
    feed = shared if shared is not None else own.feed if own is not None else ""
    stays = is_main and own is not None
    is_of_others = not stays and any(each.feed == feed and input_of(each) != read for each in others)
    is_of_before = shared is None and any(each.feed == feed for each in gone)
    return replace(dataset, feed=read if is_of_others or is_of_before else feed)


def _earlier(
    heads: Iterable[Definitions], past: PastDatasets, dataset: DatasetDefinition
) -> Iterator[DatasetDefinition]:
    """Yield what was committed under a dataset's name and version.

    That is what is on its branch, on others, and what was before, newest first.
    """
    found = chain(_named(dataset.name, heads), past.of(dataset))
    return (each for each in found if each.version == dataset.version)


def _head(deployment: Deployment, branch: str, base: int | None) -> int:
    """Return a branch's last revision; refuse another base than that."""
    last = deployment.catalog.head(branch)
    if base is not None and base != last:
        raise changed_since(branch, base)
    return last


def _put(deployment: Deployment, branch: str, message: str, found: Proposal) -> int:
    """Put definitions into the catalog unless nothing differs; return the branch's revision."""
    if found.before.datasets and _objects(found.before) == _objects(found.after):
        return found.last
    waits = must_wait(deployment, found.graph, branch)
    return deployment.catalog.commit(branch, message, dump(found.after), waits=waits, after=found.last)


def _compared(
    deployment: Deployment, branch: str, before: Definitions, after: Definitions
) -> tuple[dict[str, list[str]], Graph]:
    """Return what differs after a commit, and the graph with it."""
    graph, now = deployment.graph_with(branch, after), deployment.graph(deployment.catalog.latest())
    _examine(deployment, now, graph)
    _examine_sinks(now, graph)
    check_history(deployment, now, graph)
    recomputed = _recomputed(now, graph, branch)
    return {**_difference(before, after), "recomputed": recomputed}, graph


def _examine(deployment: Deployment, now: Graph, graph: Graph) -> None:
    """Check that new sources, and those defined otherwise than before, can be read.

    Raises:
        UmbelError: one of them cannot; the message lists all.
    """
    provide_vault(deployment.vault)
    known = {each.key: each.definition for each in now.sources()}
    errors = ErrorCollector("commit")
    for opened in open_sources(deployment.directory, graph):
        if known.get(opened.key) != opened.definition:
            with errors.noted(), located(opened.definition.location), opened.requesting():
                opened.reading.examine()
    errors.check(f"{len(errors.found)} sources cannot be read")


def _examine_sinks(now: Graph, graph: Graph) -> None:
    """Check that new sinks, and those defined otherwise than before, can be written to.

    A destination that does not answer is none of these: it gets everything once it does.

    Raises:
        UmbelError: one of them cannot; the message lists all.
    """
    errors = ErrorCollector("commit")
    for name, dataset in graph.datasets.items():
        known = now.datasets[name].sinks if name in now.datasets else ()
        for each in dataset.sinks:
            if each not in known:
                options = WriteOptions(id="", dataset=name, schema=dataset.schema, renames=dict(each.renames))
                with errors.noted(), located(each.location), suppress(Transient):
                    each.connector.examine_writer(options)
    errors.check(f"{len(errors.found)} sinks cannot be written to")


def _checked(deployment: Deployment, branch: str, after: Definitions, *, incremental: bool) -> Definitions:
    """Return a branch's definitions after checking that it may change to others."""
    check_supported(after)
    deployment.check_state()
    catalog, before = deployment.catalog, deployment.branch(branch)
    serving = deployment.definitions(catalog.serving(catalog.latest()).get(branch, 0))
    _check_definitions(before, after, serving, incremental=incremental)
    check_final(after)
    return before


def _serving(deployment: Deployment, branch: str) -> dict[str, Any]:
    """Return a branch's serving revision and the status of its backfill."""
    now = deployment.catalog.latest()
    states = [each.plain for each in switches(deployment, now) if each.branch == branch]
    return {"serving": deployment.catalog.serving(now).get(branch, 0), "status": states}


def _difference(before: Definitions, after: Definitions) -> dict[str, list[str]]:
    """Return the names of new, changed, removed and unchanged objects.

    Source locations and descriptions do not count as changes.
    """
    old, new = _meanings(before), _meanings(after)
    both = old.keys() & new.keys()
    return {
        "new": sorted(new.keys() - old.keys()),
        "changed": sorted(name for name in both if old[name] != new[name]),
        "removed": sorted(old.keys() - new.keys()),
        "unchanged": sorted(name for name in both if old[name] == new[name]),
    }


def _objects(definitions: Definitions) -> dict[str, bytes]:
    """Return each object serialised: bytes that differ if anything in it differs."""
    datasets = {name: dump(Definitions({name: each}, {})) for name, each in definitions.datasets.items()}
    return {**datasets, **{name: dump(Definitions({}, {name: each})) for name, each in definitions.featuresets.items()}}


def _meanings(definitions: Definitions) -> dict[str, str]:
    """Return a digest of each object's behaviour.

    Comments, line numbers and descriptions do not change it.
    """
    datasets = {name: _meaning_of_dataset(each) for name, each in definitions.datasets.items()}
    return {**datasets, **{name: _meaning_of_featureset(each) for name, each in definitions.featuresets.items()}}


def _meaning_of_dataset(each: DatasetDefinition) -> str:
    feeds = (each.sources, each.sinks, each.ingestion, each.online, each.offline)
    metas = {name: undescribed(meta) for name, meta in each.field_meta.items()}
    return fingerprint(each.fingerprint, each.signature, feeds, each.expectations, undescribed(each.meta), metas)


def _meaning_of_featureset(each: FeaturesetDefinition) -> str:
    features, extractors = ([undescribed(one.meta) for one in ones] for ones in (each.features, each.extractors))
    return fingerprint(each.fingerprint, undescribed(each.meta), features, extractors)


def undescribed(meta: Metadata) -> Metadata:
    """Return metadata without the description, which changes no behaviour."""
    return replace(meta, description="")


def _check_definitions(before: Definitions, after: Definitions, serving: Definitions, *, incremental: bool) -> None:
    featuresets = after.featuresets if incremental else {}
    errors = ErrorCollector("commit")
    errors.add(*dependency_errors(after), *version_errors(before, after.datasets, featuresets, serving))
    errors.check()


def _recomputed(old: Graph, new: Graph, branch: str) -> list[str]:
    """Return a branch's new datasets that need a backfill from existing history."""
    known = {node.state_id for node in old.nodes}
    entries = {node.state_id for node in old.entries.values()}
    return sorted(
        name
        for name, placed in new.names[branch].items()
        if new.outputs[placed].state_id not in known
        and any(new.entries[each].state_id in entries for each in _sources(new, placed))
    )


def _sources(graph: Graph, name: str) -> set[str]:
    return graph.upstream(name) & graph.entries.keys() - {name}
