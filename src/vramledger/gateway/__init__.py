"""The admission policy in front of a live engine: an HTTP proxy that decides before it forwards."""
