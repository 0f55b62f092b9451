"""Files: atomic folders, tensors, locks, JSON lines, untrusted files, hub names."""
