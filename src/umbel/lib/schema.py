"""Compatibility module: inputs, outputs and types, at their older import path."""

from umbel.api.inputs import inputs, outputs
from umbel.types.annotations import Dict, Embedding, Option, between, oneof, regex
from umbel.types.structs import struct
from umbel.types.windows import Window

__all__ = ["Dict", "Embedding", "Option", "Window", "between", "inputs", "oneof", "outputs", "regex", "struct"]
