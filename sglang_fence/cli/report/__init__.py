"""What ``sglang-fence report`` makes: one HTML page of a run.

Read in this order: ``facts`` (what a page is made of), ``sources`` (reading a record, a capture, or its analysis),
``choosing`` (which steps are shown), ``drawing`` and ``histogram`` (numbers into geometry), ``page`` (the templates).
"""
