"""Queries: features computed from features, and lookups on datasets."""
