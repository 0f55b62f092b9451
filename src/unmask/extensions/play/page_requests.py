"""Request bodies of the page."""

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
Seed = Annotated[int, Field(ge=0, lt=2**53)]  # JavaScript has exact integers below 2**53


class PageRequest(BaseModel):
    """A request to a model."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(max_length=200)]


class Spelling(PageRequest):
    """A request for the tokens of a text, or for the texts of tokens."""

    text: Text = ""
    tokens: Row | None = None  # instead of a text
    seed: Seed = 0  # of the uniforms; a uniform sets the time at which its token is masked


class Forming(PageRequest):
    """A request to continue `text`, or to fill the gaps of `text` or `tokens`.

    Further fields are sampling options, which `SamplingParams` checks. Options that are not given
    have the model's defaults.
    """

    model_config = ConfigDict(extra="allow")

    text: Text = ""
    tokens: Row | None = None
    length: int | None = None
    sampler: Annotated[str, Field(max_length=500)] | None = None
    seed: Seed = 0

    @property
    def options(self) -> dict[str, Any]:
        """The sampling options; raises an error for one that the page does not have."""
        known = {one.name for one in sampling_options("play")}
        more = self.model_extra or {}
        for name in more:
            if name not in known:
                raise unknown("option", name, known)
        return {**more, "sampler": self.sampler, "seed": self.seed}


class Styling(PageRequest):
    """A request for the positions that speak most against a class label."""

    tokens: Annotated[list[Token], Field(min_length=1, max_length=MOST_TOKENS)]
    label: Annotated[str, Field(max_length=200)] = ""


class Guessing(PageRequest):
    """A request for the model's predictions at the positions `places`, which are masked first."""

    tokens: Row
    places: Annotated[list[int], Field(min_length=1, max_length=MOST_TOKENS)]
    t: float | None = None  # diffusion time; None = from the share of masks
    k: Annotated[int, Field(ge=1, le=MOST_GUESSES)] = 8
