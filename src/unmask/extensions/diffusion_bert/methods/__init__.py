"""The method of DiffusionBERT."""
