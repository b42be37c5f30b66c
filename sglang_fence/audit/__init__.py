"""The audit: is a declared read end sound, and could it be earlier?

Two answers, found apart from one another. Read in this order:

* :mod:`cases` and :mod:`verdicts`: what is asked, and what may come out.
* :mod:`device`, :mod:`phases`: how an engine is built so that it can be audited, and how its phases are heard.
* :mod:`poison`, :mod:`strikes`, :mod:`windows`, :mod:`targets`, :mod:`examining`, :mod:`tally`: the experiment. At the
  moment of a candidate end, another stream overwrites a shared buffer; whatever changes has read it too late.
* :mod:`ordering`: the exact answer on the simulated device, from the happens-before relation alone.
* :mod:`auditing`: both over one case; :mod:`matrix`: over many.
"""

from __future__ import annotations
