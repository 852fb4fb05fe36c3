"""Windows of event time: tiles, panes, sessions and their partial states.

Continuous windows are stored as tiles, tumbling and hopping ones as panes.
"""
