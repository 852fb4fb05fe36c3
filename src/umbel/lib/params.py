"""The inputs and outputs of pipelines and extractors."""

from umbel.api.inputs import includes, inputs, outputs

__all__ = ["includes", "inputs", "outputs"]
