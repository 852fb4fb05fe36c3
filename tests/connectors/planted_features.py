"""A program whose sources and sinks have passwords: as texts, in a file, in the deployment's secrets, and in headers."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

from umbel import Dataset, dataset, featureset, field, inputs, pipeline
from umbel import feature as F
from umbel.connectors import HTTP, Kafka, MySQL, Postgres, sink, source
from umbel.definitions.secret import Secret

__owner__ = "shop@example.com"

settings = json.loads(Path(os.environ["PLANTED_SETTINGS"]).read_text())
login = {"username": "umbel", "host": "127.0.0.1", "password": settings["password"]}
postgres = Postgres(name="pg", port=settings["postgres"], db_name=settings["database"], **login)
mysql = MySQL(
    name="my", port=settings["mysql"], db_name=settings["database"], **{**login, "password": Secret(arn="my")}
)
kafka = Kafka(
    name="k",
    bootstrap_servers=settings["kafka"],
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_username="reader",
    sasl_plain_password=Secret(arn="file:" + settings["file"]),
)
nowhere = HTTP(name="h", host="http://127.0.0.1:1/", healthz="/")


@source(postgres.table("users"), disorder="14d", cdc="native")
@dataset(index=True)
class User:
    id: int = field(key=True)
    note: str
    updated_at: datetime


@source(mysql.table("orders", cursor="updated_at"), every="1s", disorder="14d", cdc="append")
@dataset
class Order:
    id: int
    updated_at: datetime


@source(kafka.topic(settings["topic"]), disorder="14d", cdc="append")
@dataset
class Event:
    n: int
    at: datetime


@sink(nowhere.path("in", headers={"Authorization": settings["password"]}), cdc="debezium")
@dataset
class Large:
    n: int
    at: datetime

    @pipeline
    @inputs(Event)
    def chosen(cls, events: Dataset):
        return events.filter(lambda rows: rows["n"] > 0)


@featureset
class Shopper:
    id: int
    note: str = F(User.note, default="?")
