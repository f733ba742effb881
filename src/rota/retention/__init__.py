"""Retention: the removal of jobs and other records that ended long ago, with their files."""
