"""Whether a request is let in, before the engine runs out: the same pure objects serve a simulation and a gateway."""
