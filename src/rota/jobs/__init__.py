"""Operations on jobs, one file per verb: submit, edit, move, cancel, retry, rewind, explain, list, logs.

A command is a function of the transaction it runs in; a query is a function of a reader.
"""
