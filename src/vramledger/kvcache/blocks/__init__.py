"""The block pool: who holds which blocks of the KV cache, what is shared, and what goes when room is short."""
