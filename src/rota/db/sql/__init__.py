"""SQL statements by name; see `rota.db.statements`."""
