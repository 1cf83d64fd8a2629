"""A workload replayed over a pool by a scheduler like the engine's own."""
