"""Flights of 2013 from New York: real data, live features, and an independent recomputation of all of them."""
