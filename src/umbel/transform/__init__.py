"""The transformation worker: YAML or TOML configurations that make new records of JSON records."""

from umbel.transform.configuration import Configuration, load, loads

__all__ = ["Configuration", "load", "loads"]
