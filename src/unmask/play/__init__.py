"""The playground: a page that shows each sampler step of a text, and its routes."""
