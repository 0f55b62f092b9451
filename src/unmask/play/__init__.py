"""The playground: one page that shows text forming, and its routes."""
