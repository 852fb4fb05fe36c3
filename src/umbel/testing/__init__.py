"""Testing: everything in process."""
