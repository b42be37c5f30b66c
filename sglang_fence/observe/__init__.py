"""Observation: what happened in each step, in numbers, without getting in the way of it.

The runtime calls a :class:`~sglang_fence.observe.probe.StepProbe`; observers hear of finished steps and, if they ask,
of ranges. This package knows the leaves only, and no exporter.
"""
