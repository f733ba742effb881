"""The rules: pure, synchronous, no I/O, no clock of their own."""
