"""Processes: supervision, process tree, locks and status files."""
