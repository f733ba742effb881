"""Probe of the facts that gates need: branch heads, files in branches, files on disk."""
