"""vLLM's own Scheduler beside ours, step by step."""
