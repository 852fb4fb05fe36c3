"""The client of a umbel server."""
