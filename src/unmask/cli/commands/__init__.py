"""The commands of `unmask`."""
