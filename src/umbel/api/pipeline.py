"""Pipelines: functions from datasets to the rows of the enclosing dataset.

They run once, at definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from umbel.api.inputs import INCLUDES, INPUTS, noted
from umbel.api.metadata import meta_of
from umbel.api.node import Building, Node
from umbel.definitions.env import Selector, selector
from umbel.definitions.records import DatasetDefinition, Metadata, PipelineDefinition
from umbel.errors import ErrorCollector, InvalidType, UmbelError, located, raise_all
from umbel.functions.user_function import location_of
from umbel.types.arguments import checked_call
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset

Body = Callable[..., Any]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as written.

    Args:
        func: its body.
        inputs: the datasets it reads.
        env: the environments that select it.
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
    def location(self) -> str:
        """`file:line` of the function."""
        return location_of(self.func)

    def with_meta(self, meta: Metadata) -> Pipeline:
        """Return the pipeline with metadata."""
        return replace(self, meta=meta)

    def with_includes(self, objs: tuple[Any, ...]) -> Pipeline:
        """Return the pipeline with further objects pickled with its functions."""
        return replace(self, includes=(*self.includes, *objs))

    def description(self) -> str:
        """Description from the metadata."""
        return self.meta.description

    def build(self, subject: Dataset, dataset: str) -> PipelineDefinition:
        """Run the body and return the pipeline it builds.

        Args:
            subject: the dataset that defines it: the body's `cls`.
            dataset: that dataset's name.
        """
        from umbel.api.dataset import record_of

        building = Building(f"{dataset}.{self.name}", self.includes, self.inputs)
        records = [record_of(each) for each in self.inputs]
        nodes = [Node(record.leaf(), building) for record in records]
        result = self._run(subject, [self._checked_input(*each) for each in zip(records, nodes, strict=True)], building)
        return PipelineDefinition(
            name=self.name,
            output=result.operator,
            env=self.env,
            meta=self.meta,
            location=self.location,
        )

    def _checked_input(self, record: DatasetDefinition, node: Node) -> Node:
        if record.is_terminal:
            raise InvalidType(
                f"pipeline '{node.building.pipeline}': dataset '{record.name}' ends in an aggregation over continuous "
                "windows and cannot be an input",
                where=self.location,
                hint="read what it is computed from, or aggregate over discrete windows or with emit='final'",
            )
        return node

    def _run(self, subject: Dataset, nodes: Sequence[Node], building: Building) -> Node:
        with located(self.location):
            try:
                result = self.func(subject, *nodes)
            except UmbelError:
                raise
            except TypeError as error:  # Python's own, for arguments no operator takes, which names no pipeline
                message = f"pipeline '{building.pipeline}': {error}"
                raise InvalidType(message, hint="the arguments of operators are in the reference") from error
        if not isinstance(result, Node):
            found = "nothing" if result is None else f"{result!r:.80}"
            raise InvalidType(
                f"pipeline '{building.pipeline}' must return a dataset, it returns {found}",
                where=self.location,
                hint='return what the operators made; groupby("uid") needs .aggregate(...), .first() or .latest()',
            )
        return result


@overload
def pipeline(func: Body) -> Pipeline: ...


@overload
def pipeline(func: None = None, env: str | Sequence[str] | None = None) -> Callable[[Body], Pipeline]: ...


@checked_call
def pipeline(func: Body | None = None, env: str | Sequence[str] | None = None) -> Pipeline | Callable[[Body], Pipeline]:
    """Declare a method of a dataset class as the pipeline that computes its rows.

    Args:
        func: `(cls, d1, d2, ...)`, decorated with `@inputs(D1, D2, ...)`; returns a node built from them with operators.
        env: the environments that select it.

    Raises:
        InvalidType: parameters or inputs are missing or differ from those expected.
    """

    def decorate(found: Body) -> Pipeline:
        subject = f"pipeline '{getattr(found, '__name__', found)}'"
        _check_parameters(found, subject)
        datasets = noted(found, INPUTS) or ()
        return Pipeline(found, datasets, selector(env, subject), meta_of(found), noted(found, INCLUDES) or ())

    return decorate if func is None else decorate(func)


def _check_parameters(func: Any, subject: str) -> None:
    from umbel.api.dataset import Dataset

    if not callable(func):
        raise InvalidType(f"{subject}: @pipeline needs a function", hint="write @pipeline or @pipeline(env=...)")
    where = location_of(func)
    parameters = inspect.signature(func).parameters
    names = list(parameters)
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters.values())
    if not names or names[0] != "cls":
        found = f"'{names[0]}'" if names else "none"
        raise InvalidType(
            f"{subject}: the first parameter must be 'cls', found {found}",
            where=where,
            hint="def name(cls, dataset): ...",
        )
    datasets = noted(func, INPUTS)
    if not datasets:
        raise InvalidType(f"{subject} has no inputs", where=where, hint="put @inputs(Dataset, ...) below @pipeline")
    for obj in datasets:
        if not isinstance(obj, Dataset):
            shown = getattr(obj, "__name__", repr(obj))
            raise InvalidType(
                f"{subject}: input '{shown}' is not a dataset but {type(obj).__name__}",
                where=where,
                hint="@inputs takes what @dataset made",
            )
    if len(datasets) != len(names) - 1 and not takes_any:
        provided = f"{len(datasets)} inputs, but {len(names) - 1} parameters after cls: {', '.join(names[1:])}"
        raise InvalidType(f"{subject} has {provided}", where=where, hint="one parameter for each input, after cls")


COLUMNS = "mend the fields of the dataset, or select, rename and assign columns at the end of the pipeline"


def built_pipelines(
    pipelines: Sequence[Pipeline], subject: Dataset, dataset: DatasetDefinition
) -> tuple[PipelineDefinition, ...]:
    """Build the pipelines of a dataset and check their output schemas.

    Raises:
        InvalidType: the columns of a pipeline differ; the message lists every difference.
    """
    errors, built = ErrorCollector(f"dataset '{dataset.name}'"), list[PipelineDefinition]()
    for each in pipelines:
        with errors.noted():
            built.append(each.build(subject, dataset.name))
            _check_columns(built[-1], dataset)
    errors.check()
    return tuple(built)


def _check_columns(made: PipelineDefinition, dataset: DatasetDefinition) -> None:
    title = f"pipeline '{dataset.name}.{made.name}' makes other columns than dataset '{dataset.name}' has"
    found = mismatches(made.output.schema, dataset.schema)
    raise_all(found, InvalidType, title, where=made.location, hint=COLUMNS)


def mismatches(made: Schema, declared: Schema) -> Iterator[str]:
    """Yield every difference between a pipeline's columns and its dataset's declared columns."""
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
