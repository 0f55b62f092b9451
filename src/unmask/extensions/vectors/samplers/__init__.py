"""Samplers of methods that diffuse vectors."""
