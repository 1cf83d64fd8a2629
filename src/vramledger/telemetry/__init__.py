"""Live engines as they show themselves: logs, metrics, drivers, allocators."""
