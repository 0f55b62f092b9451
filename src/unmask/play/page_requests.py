"""What the page asks: the bodies of its requests."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from unmask.errors import unknown
from unmask.generation.sampling_params import sampling_options

LONGEST_TEXT = 100_000  # characters
MOST_TOKENS = 65_536
MOST_GUESSES = 20

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Token = Annotated[int, Field(ge=0, lt=2**31)] | None  # None is a mask
Row = Annotated[list[Token], Field(max_length=MOST_TOKENS)]
Seed = Annotated[int, Field(ge=0, lt=2**53)]  # what a number of the page can hold


class PageRequest(BaseModel):
    """Of a model, by its name."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(max_length=200)]


class Spelling(PageRequest):
    """The tokens of a text, or the texts of tokens."""

    text: Text = ""
    tokens: Row | None = None  # instead of a text
    seed: Seed = 0  # of the uniforms that decide when a token is masked


class Forming(PageRequest):
    """A text to write: after `text`, in the gaps of `text`, or in those of `tokens`.

    Further fields are options of the page: `Sampling` checks them.
    """

    model_config = ConfigDict(extra="allow")

    text: Text = ""
    tokens: Row | None = None
    length: int | None = None
    sampler: Annotated[str, Field(max_length=500)] | None = None
    seed: Seed = 0

    @property
    def options(self) -> dict[str, Any]:
        """The options of the text, of which none may be unknown to the page."""
        known = {one.name for one in sampling_options("play")}
        more = self.model_extra or {}
        for name in more:
            if name not in known:
                raise unknown("option", name, known)
        return {"temperature": 1.0, **more, "sampler": self.sampler, "seed": self.seed}


class Guessing(PageRequest):
    """What the model holds for likely at some places, of which it sees none."""

    tokens: Row
    places: Annotated[list[int], Field(min_length=1, max_length=MOST_TOKENS)]
    t: float | None = None  # the diffusion time; as many masks as there are say it unless given
    k: Annotated[int, Field(ge=1, le=MOST_GUESSES)] = 8
