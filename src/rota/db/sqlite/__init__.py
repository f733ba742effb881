"""Store in a SQLite file. Only this package imports `sqlite3`.

    store        sessions and readers on one file, and the migration of its schema
    database     driver: statements, transactions, savepoints; refuses an orphaned log
    checkpoint   thread that copies the log into the database file, off the writer's path
    bulk         whole tables, for copies of a store
    backup       copies and checks of whole files

One connection writes, and any number read meanwhile (WAL). A commit is on disk when it returns.
"""
