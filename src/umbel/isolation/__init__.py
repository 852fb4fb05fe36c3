"""Run user functions in separate processes, with limits of time and memory."""
