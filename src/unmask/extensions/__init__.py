"""Extensions: one paper or domain a folder, found by its manifest."""
