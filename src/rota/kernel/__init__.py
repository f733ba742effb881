"""Scheduling rules: pure and synchronous, without I/O and without a clock of their own."""
