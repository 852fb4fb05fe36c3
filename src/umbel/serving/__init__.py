"""Serving: HTTP over the catalog, the logs and the store. Never imports pyspark."""
