"""A plan confronted with what was measured."""
