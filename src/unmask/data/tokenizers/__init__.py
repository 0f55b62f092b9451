"""Tokenizers, one kind a file."""
