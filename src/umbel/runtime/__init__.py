"""A deployment at run time, with or without Spark: sources, batch plans, change logs, commits."""
