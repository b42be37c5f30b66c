"""Cases in which each alert fires and in which it must not, written out for ``promtool test rules``.

``python -m dashboards.cases`` writes ``dashboards/tests/``.
"""
