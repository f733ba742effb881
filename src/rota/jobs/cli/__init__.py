"""Verbs of the command line that work on jobs."""
