"""Plans checked against llama.cpp's own dry run of header-only GGUF files."""
