"""Text to rows of tokens: sources, documents, tokenizers, packing, a memory-mapped cache, a resumable loader."""
