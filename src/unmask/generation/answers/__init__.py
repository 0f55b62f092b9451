"""Answers of chats, and texts that grow from left to right."""
