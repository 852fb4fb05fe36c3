"""State as a journal and sorted runs: keyed tables written and merged by whole columns."""
