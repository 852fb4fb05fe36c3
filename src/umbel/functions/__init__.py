"""User functions: pickling, references, fingerprints, and the columns they compute."""
