"""Templates: named defaults for jobs of one kind, with params that fill their placeholders."""
