"""Fixtures of the PostgreSQL server."""

from tests.postgres_server import postgres_schema, postgres_server, postgres_store, postgres_url

__all__ = ["postgres_schema", "postgres_server", "postgres_store", "postgres_url"]
