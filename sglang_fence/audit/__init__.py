"""Whether what attention backends declare of their shared reads is sound."""
