"""Adds one thing of each kind to umbel."""
