"""The names of `umbel.datasets`, where older programs import them from."""

from umbel.datasets import Dataset, Field, Pipeline, dataset, field, index, on_demand, pipeline

__all__ = ["Dataset", "Field", "Pipeline", "dataset", "field", "index", "on_demand", "pipeline"]
