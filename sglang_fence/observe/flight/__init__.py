"""The flight recorder: the fence operations of the last steps, kept in plain host memory, and readable while all hangs.

Written on the serving thread: :mod:`ring` (the steps) and :mod:`progress` (what the host knows of the device), through
:mod:`recording`, which is a part of the probe. Read on a thread of its own, without any call to the device:
:mod:`snapshot`, :mod:`recorder`, with :mod:`signalling`, :mod:`watchdog` and :mod:`crashes` to say when. What a dump
holds is in :mod:`facts`, how it lies in a file in :mod:`form` and :mod:`files`. :mod:`explaining` reads dumps.
"""
