"""Documents as rows of tokens: encoding, packing, caching, shuffling."""
