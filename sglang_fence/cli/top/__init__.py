"""What ``sglang-fence top`` shows: pages of metrics fetched, two of them compared, and the table."""
