"""The network with an encoder and a decoder."""
