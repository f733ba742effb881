"""The crash matrix: real schedulers, supervisors and children, killed at named points and at any moment.

    load      clients that ask over the socket, each request with its key: `mixed` wants everything there is, `brief`
              many short jobs and nothing else
    child     writes what it does into one file: what really ran is known without the store
    point     the table of places at which a process can be killed; `strike` does it, from inside that process
    ground    the home, who brings a killed scheduler back, and the faults
    judge     when all has ended: the store, the clients and the file of the children must tell the same

`python -m crash` runs many rounds and prints the table; `make test` runs each point once.
"""
