"""Samplers of rows that begin with uniform tokens."""
