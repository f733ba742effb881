"""Executor of runs: `port` defines the interface, `local` is the implementation for this machine."""
