"""The embedded store: the only place that names `sqlite3`."""
