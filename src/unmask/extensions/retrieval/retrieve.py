"""The options `--retrieve` and `--passages` of `unmask generate`."""

from dataclasses import dataclass

from unmask.errors import UnmaskError
from unmask.generation.context import CONTEXT_SOURCES, ContextSource
from unmask.options import option


@dataclass(frozen=True)
class RetrievalContext:
    """Options of `unmask generate` for passages of a text."""

    retrieve: str | None = option(
        None,
        metavar="SOURCE",
        help="file or folder; its paragraphs that fit the prompt best (BM25) precede the prompt as context",
    )
    passages: int | None = option(None, metavar="K", help="most paragraphs of the context (8)")

    def __post_init__(self) -> None:
        if self.retrieve is None:
            raise UnmaskError("--passages counts passages of --retrieve: give --retrieve too")
        if self.passages is not None and self.passages < 1:
            raise UnmaskError(f"--passages must be 1 or more, not {self.passages}")


@CONTEXT_SOURCES.register("retrieval")
class RetrievedPassages(ContextSource):
    """Paragraphs of a text that share words with the prompt."""

    Options = RetrievalContext

    def __init__(self, options: RetrievalContext) -> None:
        from unmask.extensions.retrieval.bm25 import Retriever

        super().__init__(options)
        self._retriever = Retriever.of(str(options.retrieve))

    def passages(self, prompt: str) -> list[str]:
        return self._retriever.search(prompt, self.options.passages or 8)

    def without(self, prompt: str) -> str:
        source = self.options.retrieve
        return f"no passage of {source} shares a word with {prompt[:40]!r}: the text has no context"
