"""What the benchmark of freshness during a backfill declares: events, payments, and a dataset that is added later."""

from __future__ import annotations

from benchmarks.backfill_features import New, Transaction
from benchmarks.freshness_features import Event, Events
from umbel import App

__owner__ = "benchmarks@example.com"

before = App(datasets=[Event, Events, Transaction])
after = App(datasets=[Event, Events, Transaction, New])
