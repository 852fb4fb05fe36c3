"""Examples: each folder is a program that runs."""
