"""Retrieval: passages that share words with a prompt (BM25) as its context, and a suite of their gain."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {"suite": {"retrieval": ".context_gain"}, "context source": {"retrieval": ".retrieve"}},
)
