"""Keyed state: the store port, its stores, and the tables kernels read and write."""
