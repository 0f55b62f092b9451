"""Text to rows of tokens: sources, documents, tokenizers, packing,
row cache and resumable loader.
"""
