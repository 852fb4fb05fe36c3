"""Operators: the schema rule and the kernel of each step of a pipeline."""
