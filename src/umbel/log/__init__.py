"""The ingest log of accepted webhook records and the change logs of datasets."""
