"""Direct executions: `rota run` and `/api/direct`, their reservations, and the leases of their clients."""
