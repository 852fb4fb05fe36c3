"""Benchmarks: speed, memory and latency, as ratios to a baseline run beside them."""

import os
from pathlib import Path

# Processes started from here find this package: umbel takes the current folder out of the path of children.
_ROOT = str(Path(__file__).parents[1])
if _ROOT not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH", "")]))
