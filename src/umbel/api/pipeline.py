"""Pipelines: functions from datasets to the rows of the dataset they are defined in. They run once, at definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from umbel.api.env import Selector, selector
from umbel.api.faults import Faults, located
from umbel.api.inputs import INCLUDES, INPUTS, noted
from umbel.api.metadata import meta_of
from umbel.api.node import Building, Node
from umbel.errors import InvalidType, all_faults
from umbel.operators.operator import Operator
from umbel.operators.userfunction import place_of
from umbel.plan.definitions import Metadata
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset, DatasetRecord

Body = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class PipelineRecord:
    """A pipeline as built: the operator whose rows are the dataset's."""

    name: str
    inputs: tuple[str, ...]
    output: Operator
    env: Selector
    meta: Metadata
    place: str


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as written.

    Args:
        func: its body.
        inputs: the datasets it reads.
        env: the environments it is for.
    """

    func: Body
    inputs: tuple[Dataset, ...]
    env: Selector
    meta: Metadata = field(default_factory=Metadata)
    includes: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.func.__name__

    @property
    def place(self) -> str:
        """`file:line` of the function."""
        return place_of(self.func)

    def with_meta(self, meta: Metadata) -> Pipeline:
        """Return it with metadata."""
        return replace(self, meta=meta)

    def with_includes(self, objs: tuple[Any, ...]) -> Pipeline:
        """Return it with further objects that travel with its functions."""
        return replace(self, includes=(*self.includes, *objs))

    def description(self) -> str:
        """What it is for."""
        return self.meta.description

    def build(self, owner: Dataset, dataset: str) -> PipelineRecord:
        """Run the body and return what it builds.

        Args:
            owner: the dataset it is defined in: the body's `cls`.
            dataset: that dataset's name.
        """
        from umbel.api.dataset import record_of

        building = Building(f"{dataset}.{self.name}", self.includes, self.inputs)
        records = [record_of(each) for each in self.inputs]
        nodes = [Node(record.leaf(), building) for record in records]
        result = self._run(owner, [self._checked_input(*each) for each in zip(records, nodes, strict=True)], building)
        return PipelineRecord(
            name=self.name,
            inputs=tuple(record.name for record in records),
            output=result.operator,
            env=self.env,
            meta=self.meta,
            place=self.place,
        )

    def _checked_input(self, record: DatasetRecord, node: Node) -> Node:
        if record.is_terminal:
            raise InvalidType(
                f"pipeline '{node.building.pipeline}': dataset '{record.name}' ends in an aggregation over continuous "
                "windows and cannot be an input",
                where=self.place,
                hint="read what it is computed from, or aggregate over discrete windows or with emit='final'",
            )
        return node

    def _run(self, owner: Dataset, nodes: Sequence[Node], building: Building) -> Node:
        with located(self.place):
            result = self.func(owner, *nodes)
        if not isinstance(result, Node):
            found = "nothing" if result is None else repr(result)
            raise InvalidType(
                f"pipeline '{building.pipeline}' must return a dataset, it returns {found}",
                where=self.place,
                hint="return what the operators made",
            )
        return result


@overload
def pipeline(func: Body) -> Pipeline: ...


@overload
def pipeline(func: None = None, env: str | Sequence[str] | None = None) -> Callable[[Body], Pipeline]: ...


def pipeline(func: Body | None = None, env: str | Sequence[str] | None = None) -> Pipeline | Callable[[Body], Pipeline]:
    """Make a method of a dataset class the pipeline that computes its rows.

    Args:
        func: `(cls, d1, d2, ...)`, decorated with `@inputs(D1, D2, ...)`; returns what operators make of them.
        env: the environments it is for.

    Raises:
        InvalidType: no or other parameters or inputs than expected.
    """

    def decorate(found: Body) -> Pipeline:
        owner = f"pipeline '{getattr(found, '__name__', found)}'"
        _check_parameters(found, owner)
        datasets = noted(found, INPUTS) or ()
        return Pipeline(found, datasets, selector(env, owner), meta_of(found), noted(found, INCLUDES) or ())

    return decorate if func is None else decorate(func)


def _check_parameters(func: Any, owner: str) -> None:
    from umbel.api.dataset import Dataset

    if not callable(func):
        raise InvalidType(f"{owner}: @pipeline needs a function", hint="write @pipeline or @pipeline(env=...)")
    where = place_of(func)
    parameters = inspect.signature(func).parameters
    names = list(parameters)
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters.values())
    if not names or names[0] != "cls":
        found = f"'{names[0]}'" if names else "none"
        raise InvalidType(
            f"{owner}: the first parameter must be 'cls', found {found}",
            where=where,
            hint="def name(cls, dataset): ...",
        )
    datasets = noted(func, INPUTS)
    if not datasets:
        raise InvalidType(f"{owner} has no inputs", where=where, hint="put @inputs(Dataset, ...) below @pipeline")
    for obj in datasets:
        if not isinstance(obj, Dataset):
            shown = getattr(obj, "__name__", repr(obj))
            raise InvalidType(
                f"{owner}: input '{shown}' is not a dataset but {type(obj).__name__}",
                where=where,
                hint="@inputs takes what @dataset made",
            )
    if len(datasets) != len(names) - 1 and not takes_any:
        given = f"{len(datasets)} inputs, but {len(names) - 1} parameters after cls: {', '.join(names[1:])}"
        raise InvalidType(f"{owner} has {given}", where=where, hint="one parameter for each input, after cls")


COLUMNS = "mend the fields of the dataset, or select, rename and assign columns at the end of the pipeline"


def built_pipelines(
    pipelines: Sequence[Pipeline], owner: Dataset, dataset: DatasetRecord
) -> tuple[PipelineRecord, ...]:
    """Build the pipelines of a dataset and check that they make its rows.

    Raises:
        InvalidType: a pipeline makes other columns; the message lists every difference.
    """
    faults, built = Faults(f"dataset '{dataset.name}'"), list[PipelineRecord]()
    for each in pipelines:
        with faults.noted():
            built.append(each.build(owner, dataset.name))
            _check_columns(built[-1], dataset)
    faults.check()
    return tuple(built)


def _check_columns(made: PipelineRecord, dataset: DatasetRecord) -> None:
    title = f"pipeline '{dataset.name}.{made.name}' makes other columns than dataset '{dataset.name}' has"
    error = all_faults(mismatches(made.output.schema, dataset.schema), InvalidType, title, hint=COLUMNS)
    if error:
        error.where = made.place
        raise error


def mismatches(made: Schema, declared: Schema) -> Iterator[str]:
    """Yield every difference between the columns a pipeline makes and those its dataset declares."""
    if made.timestamp != declared.timestamp:
        yield f"timestamp is '{made.timestamp}' in the pipeline, '{declared.timestamp}' in the dataset"
    yield from _differing("key", dict(made.keys), dict(declared.keys))
    yield from _differing("value", dict(made.values), dict(declared.values))


def _differing(role: str, made: dict[str, DType], declared: dict[str, DType]) -> Iterator[str]:
    for name, dtype in made.items():
        if name not in declared:
            yield f"{role} column '{name}' ({dtype}) is in the pipeline, but not in the dataset"
        elif declared[name] != dtype:
            yield f"{role} column '{name}' is {dtype} in the pipeline, {declared[name]} in the dataset"
    for name, dtype in declared.items():
        if name not in made:
            yield f"{role} column '{name}' ({dtype}) is in the dataset, but not in the pipeline"
