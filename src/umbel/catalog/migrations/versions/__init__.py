"""Migrations, in order."""
