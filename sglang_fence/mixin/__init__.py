"""What an operator loads beside the metrics: recording rules, alerts, and Grafana dashboards.

Rules are built from one place with parameters, so that a test compresses time. Dashboards are JSON, made from the
sources in ``dashboards/`` of the repository and packaged here, so that ``pip install`` alone gives them.

A leaf beside the catalogue: it knows metrics by name, and no exporter.
"""
