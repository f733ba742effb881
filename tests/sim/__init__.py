"""A night of work in a second: the real core, engine and SQLite store under a virtual clock, with a supervisor and
children that are simulated, and with faults. What happens is decided by a seed: a failure is a number to run again."""
