"""The store: what Rota remembers, behind a port of domain verbs."""
