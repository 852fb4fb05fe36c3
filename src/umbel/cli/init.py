"""Make a small project: definitions, a test, sample events, a README."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from umbel.errors import InvalidValue
from umbel.processes.privacy import as_the_user_wants

Name = Annotated[
    str,
    typer.Argument(
        help="The folder to make; the project is named after it. `.` is the current one.", show_default=False
    ),
]

DEFINITIONS = '''"""What comes in, what is computed from it, and the features that a model gets."""

from datetime import datetime

from umbel import Average, Continuous, Count, Dataset, F, Webhook
from umbel import dataset, featureset, field, index, inputs, pipeline, source

__owner__ = "you@example.com"


@source(Webhook(name="shop").endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Order:
    user: str
    amount: float
    at: datetime


@index
@dataset
class Spending:
    user: str = field(key=True)
    orders: int
    average: float
    at: datetime

    @pipeline
    @inputs(Order)
    def by_user(cls, orders: Dataset):
        return orders.groupby("user").aggregate(
            orders=Count(window=Continuous("7d")),
            average=Average(of="amount", window=Continuous("7d")),
        )


@featureset
class User:
    user: str
    orders: int = F(Spending.orders, default=0)
    average: float = F(Spending.average, default=0.0)
'''

TEST = '''"""The definitions do what they should: run with pytest, in process, without a server."""

from pathlib import Path

import pandas as pd

from features import Order, Spending, User
from umbel.testing import mock

ORDERS = [("ann", 20.0, "2026-03-01"), ("ann", 40.0, "2026-03-05"), ("bob", 5.0, "2026-03-05")]


def orders(rows):
    return pd.DataFrame(rows, columns=["user", "amount", "at"])


def features_at(client, user, at):
    requested = pd.DataFrame({"User.user": [user], "at": pd.to_datetime([at], utc=True)})
    found = client.query_offline([User.user], [User.orders, User.average], "at", requested)
    return found["User.orders"][0], found["User.average"][0]


@mock
def test_orders_of_the_last_week_count(client):
    client.commit("spending", datasets=[Order, Spending], featuresets=[User])
    client.log("shop", "orders", orders(ORDERS))
    assert features_at(client, "ann", "2026-03-06") == (2, 30.0)
    assert features_at(client, "ann", "2026-03-10") == (1, 40.0)
    assert features_at(client, "nobody", "2026-03-06") == (0, 0.0)


@mock
def test_a_late_order_corrects_the_past(client):
    client.commit("spending", datasets=[Order, Spending], featuresets=[User])
    client.log("shop", "orders", orders(ORDERS))
    client.log("shop", "orders", orders([("bob", 15.0, "2026-03-04")]))
    assert features_at(client, "bob", "2026-03-06") == (2, 10.0)


@mock
def test_the_sample_data_is_accepted(client):
    client.commit("spending", datasets=[Order, Spending], featuresets=[User])
    sample = pd.read_json(Path(__file__).parent / "orders.ndjson", lines=True)
    client.log("shop", "orders", sample)
    assert len(client.get_dataset_df("Order")) == len(sample)
'''

PROJECT = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["umbel"]

[project.optional-dependencies]
dev = ["pytest"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
include = ["features.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README = """# {name}

Features of a shop's users: how many orders in the last seven days, and their average amount. `features.py` defines them,
`test_features.py` tests them, `orders.ndjson` is sample data of the last two days.

```console
$ pip install -e ".[dev]"
$ pytest
```

Run it, with Spark, in one terminal:

```console
$ umbel run features -w 2
```

and use it in another:

```console
$ umbel log shop orders orders.ndjson --wait
$ umbel query User -i User.user=ann
```

Change `features.py`; where a definition changes, raise its `version=`; and commit it to the running server:

```console
$ umbel commit features -m "another window" --wait
```
"""

IGNORED = ".umbel/\n.venv/\n__pycache__/\n"

AMOUNTS = (("ann", 20.0, 40), ("bob", 5.0, 30), ("ann", 40.0, 20), ("bob", 15.0, 3), ("ann", 30.0, 1))
"""The sample orders: user, amount, and how many hours ago."""


def command(name: Name) -> None:
    """Make a small project in a new folder: definitions, a test, sample data, a README.

    The project works as it is: pytest passes, and umbel run starts it. A folder that has files is left alone.

    Examples:
        umbel init shop

        cd shop && pytest && umbel run features
    """
    folder = Path(name)
    files = project(folder.absolute().name)
    _check_free(folder)
    with as_the_user_wants():
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
            typer.echo(f"made {folder / file}")
    typer.echo(f"\nNext: cd {name} && pytest && umbel run features. README.md says more.")


def project(name: str) -> dict[str, str]:
    """Return the files of a project with their texts.

    Raises:
        InvalidValue: the name is no name of a Python project.
    """
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise InvalidValue(
            f"'{name}' is not a name of a project",
            hint="letters, digits, - and _, such as my-features; begin with a letter",
        )
    return {
        "features.py": DEFINITIONS,
        "test_features.py": TEST,
        "orders.ndjson": _sample(datetime.now(UTC)),
        "README.md": README.format(name=name),
        "pyproject.toml": PROJECT.format(name=name),
        ".gitignore": IGNORED,
    }


def _sample(now: datetime) -> str:
    """Return recent sample orders, one a line.

    Queries as of now see them for a week.
    """
    instants = ((now - timedelta(hours=hours)).replace(microsecond=0) for _, _, hours in AMOUNTS)
    rows = ({"user": user, "amount": amount} for user, amount, _ in AMOUNTS)
    lines = (json.dumps({**row, "at": at.isoformat()}) for row, at in zip(rows, instants, strict=True))
    return "".join(f"{line}\n" for line in lines)


def _check_free(folder: Path) -> None:
    """Refuse a folder that has files, and a file in its place.

    Raises:
        InvalidValue: it is one of them.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidValue(f"{folder} is a file", hint="give the name of a new folder: umbel init my-features")
    if folder.is_dir() and (found := sorted({each.name for each in folder.iterdir()} - {".git"})):
        raise InvalidValue(
            f"{folder} is not empty: it has {found[0]}", hint="give the name of a new folder: umbel init my-features"
        )
