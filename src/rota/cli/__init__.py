"""Command line. Each verb has its own module, which is imported only when the verb is used."""
