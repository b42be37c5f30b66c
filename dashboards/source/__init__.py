"""Dashboards as code; ``python -m dashboards.source`` writes the JSON that ``sglang_fence.mixin`` packages."""
