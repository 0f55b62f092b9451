"""Other libraries' interfaces to our models."""
