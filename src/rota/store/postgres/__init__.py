"""The store on a PostgreSQL server: the only place that names `psycopg`."""
