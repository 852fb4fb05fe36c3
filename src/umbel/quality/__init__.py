"""Expectations: counts of a dataset's rows that pass each check."""
