"""The catalog: definitions, jobs, dead letters, secrets."""
