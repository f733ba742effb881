"""`rota serve`: the composition of the scheduler process.

main thread     asyncio: HTTP on the socket and over TCP, signals, webhooks
rota-engine     the only writer: turns of one transaction each, the supervisor's socket
rota-reader     views, each in one read transaction
rota-prober     probes of repositories and files for the jobs that wait for them
rota-mirror     job files for users and tools, written after the commit
rota-gc         daily removal of old records
rota-depth      log of the queue depth while jobs wait
"""

from rota.daemon.daemon import main

__all__ = ["main"]
