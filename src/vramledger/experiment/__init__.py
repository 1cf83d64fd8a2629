"""Load on a live engine, and what came back."""
