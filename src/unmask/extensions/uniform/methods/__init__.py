"""Methods whose network reads uniform tokens in place of masks."""
