"""Persistent state of Rota, behind a port of domain verbs."""
