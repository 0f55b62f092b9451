"""Rows of tokens: encoding, packing, caching and shuffling of documents."""
