"""What a memory failure was: messages, the moment they stood in, the class, the arithmetic, what would help."""
