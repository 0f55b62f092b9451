"""Layers of networks: attention, blocks, dropout, packed batches, states."""
