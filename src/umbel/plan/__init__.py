"""Plans: definitions, their graph, and how changes flow through it."""
