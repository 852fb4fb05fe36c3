"""Logs: the ingest log of what webhooks accepted, the change logs of what datasets became."""
