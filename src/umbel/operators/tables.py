"""What a kernel sees of the state: tables of its own operator in one shard."""

from umbel.state.tables import State, Table

__all__ = ["State", "Table"]
