"""Executor of runs: the port through which the engine starts and stops runs, and its implementation for this machine.

port       orders to an executor, and the messages that come back
local      connection to the supervisor of the home, which owns the children (`rota.supervisor`)
launcher   start of a supervisor that is missing or outdated
"""
