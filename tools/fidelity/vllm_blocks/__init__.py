"""The block pool against vLLM's own KVCacheManager: same hits, same blocks, same order of the free queue."""
