"""Executor of runs: the port through which the engine starts and stops runs, and its implementation for this machine.

    port       orders to an executor, and the messages that come back
    local      connection to the supervisor of the home, which owns the children (`rota.supervisor`)
    launcher   connection to a running supervisor, or the start of one

An order leaves only after the commit of its turn, and a message is acknowledged only after the commit that records it.
"""
