"""Memory: the shared buffers of the runtime, and who owns which page.

``req_to_token`` (:mod:`~sglang_fence.memory.request_pool`), the paged KV pool and its allocator, the prefix cache, and
the sliding-window pool with its full-to-SWA mapping. Page 0 and row 0 are never handed out: padding points there.
"""
