"""Queries: features from features, and lookups on datasets."""
