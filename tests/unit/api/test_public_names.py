"""The public names are where users look for them (api §0)."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import umbel.lib
import umbel.lib.expectations
import umbel.lib.includes
import umbel.lib.secrets
from umbel.api import expect
from umbel.api import secrets as api_secrets
from umbel.api.app import App
from umbel.api.secrets import secrets_from
from umbel.connectors import credentials
from umbel.errors import UnknownName

AGGREGATES = "Count Distinct Sum LastK FirstK Min Max Average AggregateType Stddev"
ALL_AGGREGATES = f"{AGGREGATES} Quantile ExpDecaySum"
EXPECTATIONS = " ".join(expect.__all__)
NAMES = {
    "umbel": f"client connectors dataset field pipeline Dataset featureset extractor F meta App {ALL_AGGREGATES} Client "
    "MockClient mock Webhook Kafka S3 Files source sink index Continuous Tumbling Hopping Session Window struct oneof between "
    "regex Embedding Decimal inputs outputs includes expectations desc Featureset Feature Extractor feature bucketize Secret col "
    "lit when ref UmbelError",
    "umbel.datasets": f"dataset Dataset index pipeline field on_demand {ALL_AGGREGATES}",
    "umbel.datasets.datasets": "dataset Dataset index pipeline field on_demand",
    "umbel.datasets.aggregate": ALL_AGGREGATES,
    "umbel.connectors": "Webhook Kafka Kinesis S3 Postgres MySQL Snowflake BigQuery Redshift Mongo PubSub HTTP source "
    "sink CSV Avro Protobuf ref eval Ref Eval Certificate at_timestamp kinesis S3Connector KafkaConnector "
    "TableConnector WebhookConnector KinesisConnector PubSubConnector HTTPConnector DataSource DataConnector Sample",
    "umbel.connectors.connectors": "Sample source sink ref eval Kafka",
    "umbel.sources": "Webhook Kafka Kinesis S3 Postgres MySQL Snowflake BigQuery Redshift Mongo source sink CSV ref",
    "umbel.integrations": "Secret",
    "umbel.integrations.aws": "Secret",
    "umbel.dtypes": "Embedding Decimal oneof regex between struct Window Continuous Tumbling Hopping Session Option Dict",
    "umbel.dtypes.dtypes": "Embedding Decimal oneof regex between struct Window Continuous",
    "umbel.featuresets": "featureset feature extractor Featureset Feature Extractor",
    "umbel.featuresets.featureset": "featureset feature extractor Featureset Feature Extractor",
    "umbel.lib": f"inputs outputs meta desc includes expectations secrets bucketize {EXPECTATIONS}",
    "umbel.lib.schema": "inputs outputs between oneof regex struct Window Embedding Option Dict",
    "umbel.lib.aggregate": ALL_AGGREGATES,
    "umbel.lib.params": "inputs outputs",
    "umbel.lib.metadata": "meta desc",
    "umbel.lib.includes": "includes",
    "umbel.lib.expectations": f"expectations {EXPECTATIONS}",
    "umbel.lib.secrets": "secrets get",
    "umbel.expr": "col lit when var now repeat from_epoch datetime make_struct Expr InvalidExprException",
    "umbel.expr.expr": "col lit when make_struct from_epoch repeat InvalidExprException TimeUnit Expr TypedExpr",
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module: str) -> None:
    found = import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_star_imports() -> None:
    for module in (
        "umbel",
        "umbel.datasets",
        "umbel.connectors",
        "umbel.connectors.connectors",
        "umbel.lib",
        "umbel.dtypes",
    ):
        space: dict[str, object] = {}
        exec(f"from {module} import *", space)
        assert set(import_module(module).__all__) <= set(space), module


def test_functions_are_not_hidden_by_modules_of_the_same_name() -> None:
    assert callable(umbel.lib.includes)
    assert callable(umbel.lib.expectations)
    assert callable(import_module("umbel.featuresets").featureset)
    assert umbel.lib.secrets.get is not None


def test_unknown_names() -> None:
    for module in ("umbel", "umbel.connectors", "umbel.connectors.connectors"):
        with pytest.raises(AttributeError, match="nothing"):
            _ = import_module(module).nothing


def test_importing_umbel_loads_no_frames() -> None:
    program = "import sys, umbel; print([m for m in ('pandas', 'polars', 'pyarrow', 'numpy') if m in sys.modules])"
    report = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert report.stdout.strip() == "[]"


def test_every_lazy_name_is_listed() -> None:
    assert set(umbel.HOMES) == set(umbel.__all__)
    assert set(umbel.HOMES) <= set(dir(umbel))


def test_every_lazy_name_is_known_to_type_checkers() -> None:
    (block,) = [each for each in ast.parse(Path(umbel.__file__).read_text()).body if isinstance(each, ast.If)]
    listed = {name.asname or name.name for each in block.body for name in each.names}  # type: ignore[attr-defined]
    assert listed == set(umbel.__all__)


@pytest.mark.parametrize(
    "module", ["umbel.datasets", "umbel.connectors", "umbel.dtypes", "umbel.featuresets", "umbel.lib"]
)
def test_a_name_is_the_same_wherever_it_is_found(module: str) -> None:
    found = import_module(module)
    both = set(found.__all__) & set(umbel.__all__)
    assert both
    assert [name for name in both if getattr(umbel, name) is not getattr(found, name)] == []


def test_a_misspelt_name_has_the_right_one_in_its_error() -> None:
    with pytest.raises(ImportError, match="Webhok"):
        exec("from umbel import Webhok")
    with pytest.raises(AttributeError, match="did you mean 'Webhook'"):
        _ = umbel.Webhok  # type: ignore[attr-defined]


def test_app() -> None:
    assert App(datasets=(), featuresets=()) == App()


def test_secrets_come_from_the_provider_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    class Provider:
        def get(self, name: str) -> str:
            return f"kept {name}"

    secrets = umbel.lib.secrets
    with pytest.raises(KeyError, match="'token'") as caught:
        secrets.get("token")
    assert isinstance(caught.value, UnknownName)
    monkeypatch.setenv("UMBEL_SECRET_token", "from outside")
    assert secrets.get("token") == "from outside"
    with secrets_from(Provider()):
        assert secrets.get("token") == "kept token"
    assert secrets.get("token") == "from outside"


def test_a_secret_of_the_deployment_goes_before_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a worker, which has one provider for all threads."""

    class Provider:
        def get(self, name: str) -> str:
            if name == "token":
                return "stored"
            raise UnknownName(f"secret '{name}' does not exist")

    monkeypatch.setattr(api_secrets, "_of_process", [])
    monkeypatch.setattr(credentials, "_vaults", [])
    monkeypatch.setenv("UMBEL_SECRET_token", "from outside")
    monkeypatch.setenv("UMBEL_SECRET_other", "from outside")
    api_secrets.provide_secrets(Provider())
    assert umbel.lib.secrets.get("token") == "stored"
    assert umbel.lib.secrets.get("other") == "from outside"
    with pytest.raises(UnknownName, match="'third'"):
        umbel.lib.secrets.get("third")
