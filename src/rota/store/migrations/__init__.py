"""Numbered scripts, applied in order; a fresh database is one that has had them all."""
