"""Store on a PostgreSQL server. Only this package imports `psycopg`."""
