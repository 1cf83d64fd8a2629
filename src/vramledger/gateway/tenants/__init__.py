"""Who may ask what: tenants by their keys, the paths that pass, and what keeps tenants apart in the engine."""
