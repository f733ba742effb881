"""SQL statements by name; see `rota.store.statement`."""
