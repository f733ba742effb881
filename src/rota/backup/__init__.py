"""Backup and restore of a home, and the detection of a store that has lost its records."""
