"""Definitions: the frozen records of a commit, their serialisation, versions and tags."""
