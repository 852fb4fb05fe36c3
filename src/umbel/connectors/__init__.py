"""Connectors: what a dataset reads from and writes to."""
