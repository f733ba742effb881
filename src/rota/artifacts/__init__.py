"""Artifacts that jobs and clients put: operations, endpoints and `rota artifact`. The gate is in `kernel.artifacts`."""
