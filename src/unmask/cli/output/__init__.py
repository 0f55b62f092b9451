"""Output of commands: tables, texts, times, encodings."""
