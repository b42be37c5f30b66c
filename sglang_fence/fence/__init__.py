"""The fence. Read in this order: :mod:`events`, :mod:`publication`, :mod:`barrier`.

A runner *publishes* where its shared reads end; the *mailbox* carries that to the scheduler; the *barrier* makes the
schedule stream wait for it. Ten minutes from top to bottom.
"""
