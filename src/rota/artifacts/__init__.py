"""Artifacts that jobs and people put: operations, endpoints and `rota artifact`. The gate is in `kernel.artifacts`."""
