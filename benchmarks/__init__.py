"""Benchmarks: each module with a `run()` that returns figures is one; `python -m benchmarks.run` runs them all."""
