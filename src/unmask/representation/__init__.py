"""Classes, scores and embeddings of texts, by any network."""
