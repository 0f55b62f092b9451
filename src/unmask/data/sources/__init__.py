"""Sources of documents: files, folders, standard input, the hub."""
