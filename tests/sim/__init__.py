"""Deterministic simulation: a night of work in a second.

The real core, engine and SQLite store run under a virtual clock, with a simulated supervisor, simulated jobs, and
faults. A seed decides everything, so that a failure can be repeated by its number.
"""
