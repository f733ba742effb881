"""Persistent state of Rota: a store with one repository per noun, on SQLite or PostgreSQL.

    Store ──▶ Session   one writer: transactions of `tx.jobs`, `tx.queue`, …           store, session
          └─▶ Reader    any number: the same repositories without their changes

    repositories        verbs over named statements; `db/sql` and NAME.sql of the packages   jobs, queue, runs, …
    Database            named statements, transactions, savepoints                           database, statements
    sqlite/ postgres/   drivers: connection, dialect, migration, bulk access
    migrations/         schema of both databases

Both databases execute the same statements, and every test of a repository runs on both. A repository is two classes:
one with reads (`JobRecords`), and one that adds changes (`Jobs`). A damaged record is decoded as far as it can be read
(`decoding`), so that it hides no other.
"""
