"""The command line: one file for each verb, imported only when that verb is used."""
