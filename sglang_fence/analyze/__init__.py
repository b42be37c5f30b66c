"""Captures of Nsight Systems that read themselves: what the fence did, told from the device's own timeline.

Read in this order: ``tables`` (what of a capture is read), ``capture`` (opening one), ``graphs`` (where the marker of a
graph lies), ``work`` (what ran on each stream), ``waits`` (what each wait is bound to), ``ranges`` (our NVTX ranges),
``barriers`` (which waits are the fence's), ``steps`` (slack and wait of each), ``report`` (all of it).

None of it looks at the events that the observer times: it is a second, independent witness.
"""
