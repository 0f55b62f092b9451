"""The suites of `unmask evaluate`."""
