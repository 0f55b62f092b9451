"""Files: atomic folders, tensors, locks, JSON lines, untrusted content and the hub."""
