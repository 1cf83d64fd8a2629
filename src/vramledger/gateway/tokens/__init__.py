"""How many tokens a prompt has, and what its beginning is."""
