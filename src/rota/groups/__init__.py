"""Groups of jobs: operations, progress, endpoints and `rota group`. Their rules are in `kernel.groups`."""
