"""The execution plan as text and as a Mermaid diagram.

It shows the operators, their inputs, their stage and their output columns.

An operator is described by its fields alone, so a new one needs no description of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

from umbel.functions.computed import Computed
from umbel.graph.graph import Graph, GraphNode
from umbel.operators.operator import Keyed
from umbel.types.schema import Schema

LONGEST = 160
UNTOLD = frozenset({"parents", "dataset", "columns", "appends"})
"""Operator fields not printed as parameters: the line shows them in another form."""
READ = "read, validate, row by row"
KEYED = "exchanged by key"


def explain(graph: Graph) -> str:
    """Return the graph as text: its operators by stage.

    Each operator has its inputs, its parameters and its schema.
    """
    head = f"{_many(len(graph.nodes), 'operator')} in {_many(graph.depth + 1, 'stage')}"
    lines = [f"{head}, {_many(len(graph.outputs), 'dataset')}"]
    for stage, nodes in stages(graph).items():
        lines += ["", f"stage {stage}: {READ if stage == 0 else KEYED}"]
        for node in nodes:
            lines.append(f"{node.number:>4}  {title(node)}")
            if not _passes_on(node):
                lines.append(f"      {columns(node.operator.schema)}")
    return "\n".join(lines) + "\n"


def mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for stage, nodes in stages(graph).items():
        lines.append(f'  subgraph stage{stage}["stage {stage}"]')
        lines += [f"    {_box(node)}" for node in nodes]
        lines.append("  end")
    for node in graph.nodes:
        for parent in node.parents:
            arrow = "==>" if parent.stage < node.stage else "-->"
            lines.append(f"  n{parent.number} {arrow} n{node.number}")
    return "\n".join(lines) + "\n"


def stages(graph: Graph) -> dict[int, list[GraphNode]]:
    """Return the nodes of each stage, including row-wise ones."""
    return {stage: [node for node in graph.nodes if node.stage == stage] for stage in range(graph.depth + 1)}


def title(node: GraphNode) -> str:
    """Return a node in one line: its dataset, operator, inputs and parameters."""
    operator, made = node.operator, f"{node.dataset} = " if node.dataset else ""
    reads = ", ".join(f"#{parent.number}" for parent in node.parents) or getattr(operator, "dataset", "")
    notes = [*parameters(operator), *_routing(node)]
    return f"{made}{operator.kind}({reads}){''.join(f'  {note}' for note in notes)}"


def parameters(operator: Any) -> Iterator[str]:
    """Yield the fields of an operator that differ from their defaults."""
    for each in fields(operator):
        value = getattr(operator, each.name, None)
        shown = each.init and each.metadata.get("identity", True)
        if shown and each.name not in UNTOLD and not _is_default(each, value):
            yield f"{each.name}={_short(shown_value(value))}"
        if shown and each.name == "columns" and not isinstance(value, Schema):
            yield f"columns={_short(shown_value(value))}"


def columns(schema: Schema) -> str:
    """Return the columns of a schema with their types and roles."""
    roles = {**dict.fromkeys(schema.key_names, " key"), schema.timestamp: " timestamp"}
    return ", ".join(f"{name}: {dtype}{roles.get(name, '')}" for name, dtype in schema.dtypes.items())


def _passes_on(node: GraphNode) -> bool:
    """Return True if the output columns equal the input columns."""
    schema = node.operator.schema
    return len(node.parents) == 1 and columns(node.parents[0].operator.schema) == columns(schema)


def shown_value(value: Any) -> str:
    """Return a parameter's value in readable form."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _list(f"{name}: {shown_value(each)}" for name, each in value.items())
    if isinstance(value, tuple | list):
        return _list(_pair(each) for each in value)
    if hasattr(value, "where") and hasattr(value, "name"):
        return str(value.name)  # the user's function
    if not is_dataclass(value) or type(value).__str__ is not object.__str__:
        return str(value)
    return _record(value)


def _record(value: Any) -> str:
    declared = {each.name: getattr(value, each.name) for each in fields(value) if _is_declared(each, value)}
    if len(fields(value)) == 1 and isinstance(value, Computed):
        return shown_value(next(iter(declared.values()), None))
    named = (f"{name}={shown_value(each)}" for name, each in declared.items())
    inner = map(shown_value, declared.values()) if len(declared) == 1 else named
    return f"{type(value).__name__}({', '.join(inner)})"


def _is_declared(each: Field[Any], state_id: Any) -> bool:
    return each.repr and not _is_default(each, getattr(state_id, each.name))


def _is_default(each: Field[Any], value: Any) -> bool:
    if each.default is not MISSING:
        return bool(value == each.default)
    return each.default_factory is not MISSING and bool(value == each.default_factory())


def _pair(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2:
        first, second = map(shown_value, value)
        return first if first == second else f"{first}: {second}"
    return shown_value(value)


def _list(parts: Iterable[str]) -> str:
    return f"[{', '.join(parts)}]"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _routing(node: GraphNode) -> Iterator[str]:
    if isinstance(node.operator, Keyed):
        yield f"by [{', '.join(dict.fromkeys(name for each in node.operator.exchange() for name in each))}]"
    if node.is_logged:
        yield "logged"


def _box(node: GraphNode) -> str:
    name = node.dataset or getattr(node.operator, "dataset", "")
    label = f"{name}<br/>{node.operator.kind}" if name else node.operator.kind
    quoted = label.replace('"', "#quot;")
    return f'n{node.number}[["{quoted}"]]' if node.dataset else f'n{node.number}["{quoted}"]'


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
