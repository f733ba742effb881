"""Webhooks: URLs that receive messages about ends of jobs, and the delivery of these messages.

A webhook receives messages about all jobs. A job can also name URLs of its own. A receiver is either: a webhook, or the
host of a job's URLs.

The messages are stored by a step of the engine's turn, `engine.outbox`.
"""
