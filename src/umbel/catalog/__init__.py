"""The catalog: what is committed, and how far it is processed."""
