"""Exporters of what the fence observes, found through the entry-point group ``sglang_fence.exporters``."""
