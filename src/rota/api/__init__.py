"""HTTP API: the interface of all clients, including the CLI."""
