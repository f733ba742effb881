"""SQL by name; see `rota.store.statement`."""
