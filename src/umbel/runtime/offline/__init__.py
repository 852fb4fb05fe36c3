"""Offline queries that run as jobs: from files in a bucket, to files in a bucket."""
