"""Store on a PostgreSQL server. Only this package imports `psycopg`.

    store        sessions and readers on one server
    address      the URL of a store, and what follows from it: schema, lock, channel
    connection   prepared and pipelined statements, errors of the server
    dialect      translation of statements and migrations
    database     driver of readers, which reconnect
    writer       driver of the session: its lock, the epoch, the outcome of a commit, the migration of the schema
    bulk         whole tables, for copies of a store

A session holds a lock on the server, so that a store has one scheduler wherever it runs.
"""
