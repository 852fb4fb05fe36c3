"""The steps of the transformation worker: each module registers those of one family."""

from umbel.transform.steps import casts, code, explode, expressions, json, lookups, private, text, times, values

__all__ = ["casts", "code", "explode", "expressions", "json", "lookups", "private", "text", "times", "values"]
