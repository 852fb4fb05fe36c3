"""Changes of datasets: version histories, upserts, and runs of sorted rows."""
