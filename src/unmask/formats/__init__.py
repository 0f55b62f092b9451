"""Model folders and checkpoints, ours and those of others."""
