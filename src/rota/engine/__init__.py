"""Dispatch, completion and recovery of jobs, driven by events and never by polling."""
