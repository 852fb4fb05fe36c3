"""Offline queries that run as jobs, with input and output files in buckets."""
