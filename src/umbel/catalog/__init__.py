"""The catalog: committed definitions and the progress of their processing."""
