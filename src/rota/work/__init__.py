"""Work items: units of work in the trackers of users, which Rota schedules without owning them.

model.py     items, the ready rule, and the board, which joins all sources
source.py    the port to a source, and its loading
beads.py     sources of the kind beads
listing.py   sources of the kind list
reader.py    reads the configured sources when they change
targets.py   the target of an item
"""
