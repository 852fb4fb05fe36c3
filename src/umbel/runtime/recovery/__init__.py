"""Recovery: backups of a deployment, checks of what it has stored, and repairs."""
