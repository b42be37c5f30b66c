"""A scenario for dashboards and alerts: an engine on the simulated device, fine, UNKNOWN, forced coarse, fine again.

What it serves is real: tokens, steps, fences and reasons come from the runtime. What the runtime has no part for is
said by the scenario itself, as a server with the plugin would say it: hooks that are installed, an audit that found
the backend sound, an exporter that turned nothing away.
"""
