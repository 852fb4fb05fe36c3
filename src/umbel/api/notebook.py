"""Representations in notebooks: datasets, featuresets, plans and responses as HTML without scripts, styles or links.

Every text goes through `escaped`: names and values come from users.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umbel.graph.explain import columns, parameters
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Keyed, Operator

if TYPE_CHECKING:
    from umbel.client.response import Response
    from umbel.definitions.records import DatasetDefinition, FeaturesetDefinition

WIDTH, HEIGHT, GAP_X, GAP_Y = 190, 46, 50, 16
"""The size of an operator's box, and the distances between boxes, in pixels."""
LONGEST = 26
"""Characters that fit into a box."""
ITEMS = 50
"""Items of a list or an object that are shown."""


def escaped(value: object) -> str:
    """Return a value's text, safe in HTML and in attributes."""
    return html.escape(str(value), quote=True)


def card(title: str, note: str, *parts: str) -> str:
    """Return a titled box; the parts are HTML."""
    note = f"<div>{escaped(note)}</div>" if note else ""
    return f"<div><div><b>{escaped(title)}</b></div>{note}{''.join(parts)}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of texts."""
    titles = "".join(f"<th>{escaped(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{escaped(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def nested(value: Any) -> str:
    """Return a JSON value as nested lists, cut after many items."""
    if isinstance(value, Mapping):
        items = [f"<li><b>{escaped(name)}</b>: {nested(each)}</li>" for name, each in value.items()]
    elif isinstance(value, list | tuple):
        items = [f"<li>{nested(each)}</li>" for each in value]
    else:
        return escaped("" if value is None else value)
    rest = len(items) - ITEMS
    return f"<ul>{''.join(items[:ITEMS])}{f'<li>… {rest} more</li>' if rest > 0 else ''}</ul>" if items else "–"


def of_dataset(record: DatasetDefinition) -> str:
    """Return a dataset: its fields with types and roles, its sources, and its pipelines, drawn."""
    keys, timestamp = record.schema.key_names, record.schema.timestamp
    roles = {**dict.fromkeys(keys, "key"), timestamp: "timestamp"}
    rows = [
        (name, dtype, roles.get(name, ""), record.field_meta[name].description if name in record.field_meta else "")
        for name, dtype in record.dtypes.items()
    ]
    fed = [("source", f"{type(each.connector).__name__}, cdc {each.cdc}") for each in record.sources]
    fed += [("sink", type(each.connector).__name__) for each in record.sinks]
    drawn = (f"<div>pipeline <i>{escaped(each.name)}</i></div>{plan(each.output)}" for each in record.pipelines)
    return card(
        f"Dataset {record.name}, version {record.version}",
        record.meta.description,
        table(("field", "type", "role", "description"), rows),
        table(("", "connector"), fed) if fed else "",
        *drawn,
    )


def of_featureset(record: FeaturesetDefinition) -> str:
    """Return a featureset: its features with their types, extractors and inputs."""
    makers = {name: each for each in record.extractors for name in each.outputs}
    rows = []
    for each in record.features:
        maker = makers.get(each.fqn)
        by = "" if maker is None else ", ".join((*maker.datasets, *maker.inputs))
        rows.append((each.name, each.dtype, "input" if maker is None else f"from {by}", each.meta.description))
    head = ("feature", "type", "value", "description")
    return card(f"Featureset {record.name}", record.meta.description, table(head, rows))


def of_response(response: Response) -> str:
    """Return a response: its status and, of a JSON body, the values."""
    try:
        body = nested(response.json())
    except ValueError:
        body = f"<pre>{escaped(response.text)}</pre>"
    return card(f"{response.status_code} {response.reason}", response.url, body)


def plan(output: Operator) -> str:
    """Return the operators that lead to an output, drawn as SVG.

    Datasets are on the left; operators with state have a thick border; the tooltip of each has its columns.
    """
    places = _places(output)
    width = (max(x for x, _ in places.values()) + 1) * (WIDTH + GAP_X) - GAP_X + 4
    height = (max(y for _, y in places.values()) + 1) * (HEIGHT + GAP_Y) - GAP_Y + 4
    edges = [_edge(places[parent], at) for each, at in places.items() for parent in each.parents]
    boxes = [_box(each, at) for each, at in places.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        f"{''.join(edges)}{''.join(boxes)}</svg>"
    )


def _places(output: Operator) -> dict[Operator, tuple[int, int]]:
    """Return the column and row of each operator: a column right of its inputs."""
    column: dict[Operator, int] = {}

    def put(operator: Operator) -> int:
        if operator not in column:
            column[operator] = 1 + max((put(each) for each in operator.parents), default=-1)
        return column[operator]

    put(output)
    taken: dict[int, int] = {}
    places = {}
    for operator, x in column.items():
        places[operator] = (x, taken.setdefault(x, 0))
        taken[x] += 1
    return places


def _box(operator: Operator, place: tuple[int, int]) -> str:
    x, y = _corner(place)
    is_input = isinstance(operator, Leaf)
    title = operator.dataset if isinstance(operator, Leaf) else operator.verb
    details = "" if is_input else "  ".join(parameters(operator))
    border = 3 if isinstance(operator, Keyed) else 1
    text = "".join(
        f'<text x="{x + WIDTH // 2}" y="{y + dy}" text-anchor="middle" fill="#222"{bold}>{escaped(_cut(line))}</text>'
        for line, dy, bold in ((title, 19, ' font-weight="bold"'), (details, 36, ""))
    )
    return (
        f"<g><title>{escaped(details)} [{escaped(columns(operator.schema))}]</title>"
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
        f'fill="{"#e8f0fe" if is_input else "#fff"}" stroke="#456" stroke-width="{border}"/>{text}</g>'
    )


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = _corner(start), _corner(end)
    middle = HEIGHT // 2
    return f'<line x1="{x1 + WIDTH}" y1="{y1 + middle}" x2="{x2}" y2="{y2 + middle}" stroke="#456"/>'


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return 2 + place[0] * (WIDTH + GAP_X), 2 + place[1] * (HEIGHT + GAP_Y)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
