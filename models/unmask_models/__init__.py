"""Models of unmask, one folder each, which `unmask.load` finds by name."""
