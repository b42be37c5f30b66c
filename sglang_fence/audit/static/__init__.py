"""The audit by source alone: what is wrong with a declaration can often be read off, without a device.

Read in this order: ``target`` finds files, ``sources`` chooses and parses those that bear on the contract,
``classes`` and ``world`` resolve names across them, ``modes``, ``paths`` and ``calls`` follow a method in one forward
mode, ``answers``, ``reads`` and ``children`` say what a class declares, reads and holds, each of ``rules`` puts these
together, and ``report`` runs them all.
The target is parsed, never imported.
"""
