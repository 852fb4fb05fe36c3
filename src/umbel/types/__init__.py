"""Types of values: annotations, validation, storage and conversion to Python."""
