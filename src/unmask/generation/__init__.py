"""Generation, infilling and editing of texts with a bundle."""
