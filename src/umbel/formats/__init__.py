"""File and message formats: CSV, JSON, Parquet and Avro rows, read in pieces."""
