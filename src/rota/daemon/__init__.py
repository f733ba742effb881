"""`rota serve`: the one place where the parts are put together.

main thread     asyncio: HTTP on the socket and over TCP, signals, webhooks
rota-engine     the only writer: turns of one transaction each, the supervisor's socket
rota-reader     views, each at one moment of the store
rota-prober     repositories and files outside, looked at for jobs that wait for them
rota-mirror     files for people and tools, written behind
rota-gc         once a day, removes what is old
rota-depth      while anything waits, logs what
"""

from rota.daemon.daemon import main

__all__ = ["main"]
