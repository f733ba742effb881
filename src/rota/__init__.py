"""Rota: a durable scheduler for the work of AI agents, LLM pipelines and any other command."""

__version__ = "0.1.0"
