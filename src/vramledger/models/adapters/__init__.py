"""LoRA adapters: read from their files, and placed on a base model's tensors."""
