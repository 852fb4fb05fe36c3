"""Inputs, outputs and types, where older programs import them from."""

from umbel.api.inputs import inputs, outputs
from umbel.dtypes import Dict, Embedding, Option, Window, between, oneof, regex, struct

__all__ = ["Dict", "Embedding", "Option", "Window", "between", "inputs", "oneof", "outputs", "regex", "struct"]
