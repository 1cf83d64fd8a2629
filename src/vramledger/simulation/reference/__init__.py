"""The readable simulator: step by step and block by block. It is what the compiled one must equal."""
