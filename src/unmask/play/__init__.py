"""The playground: one page that shows text forming, and what it asks of a model."""

from unmask.play.routes import router

__all__ = ["router"]
