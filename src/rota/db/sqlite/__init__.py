"""Store in a SQLite file. Only this package imports `sqlite3`."""
