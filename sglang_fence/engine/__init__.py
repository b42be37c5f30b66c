"""The engine: requests, batches, worker, scheduler."""
