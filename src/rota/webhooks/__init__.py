"""Webhooks: endpoints and URLs that receive messages about ends of jobs, and the delivery of these messages.

The messages are stored by a step of the engine's turn, `engine.outbox`.
"""
