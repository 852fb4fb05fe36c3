"""Generated from proto/umbel.proto by `make proto`; not edited by hand."""
