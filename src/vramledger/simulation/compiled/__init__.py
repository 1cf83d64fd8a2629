"""The simulator compiled: between two events decode steps are uniform, so its cost grows with events, not with tokens."""
