"""The crash matrix: real schedulers, supervisors and children, killed at named points and at any moment.

    load      clients that submit, run directly, cancel and rewind over the socket, each request with its key
    child     writes what it does into one file: what really ran is known without the store
    point     the table of places at which a process can be killed; `strike` does it, from inside that process
    ground    the home, who brings a killed scheduler back, and the faults
    judge     when all has ended: the store, the clients and the file of the children must tell the same

`python -m crash` runs many rounds and prints the table; `make test` runs each point once.
"""
