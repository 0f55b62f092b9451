"""OpenAI's routes: completions, chat and responses."""
