"""The `data` section of a configuration: sources, tokenizer, row length and packing."""

import math
from dataclasses import dataclass, field

from unmask.data.documents.detokenizers import DETOKENIZERS
from unmask.data.documents.separation import AUTO
from unmask.data.rows.packing import PACKERS
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.options import check_options, option

PACKINGS = tuple(name for name in PACKERS if name != "pairs" and "chats" not in name)
STREAMS = ("join", "wrap")  # packings whose rows start anywhere in a document
WINDOWS = "windows"  # packing whose rows have neither BOS nor EOS
SHARED = ("fit", *STREAMS)  # packings whose rows hold several documents
LONGEST_ROW = 2**20  # tokens


@dataclass(frozen=True)
class Portion:
    """A source of a mixture and its weight. Training draws rows in proportion to the weight."""

    text: str = ""
    weight: float = option(1.0, gt=0, lt=math.inf)

    def __post_init__(self) -> None:
        if not self.text:
            raise UnmaskError("text is empty; give a file, a folder or another source")
        check_options(self)


@dataclass(frozen=True)
class DataConfig:
    """The sources of a run and the settings that cut their text into rows of `length` tokens."""

    train: str | tuple[Portion, ...] = "builtin:pydoc"  # a tuple is mixed by weight
    valid: str = ""  # "": validate on the held-out training documents
    # fraction of the training documents, used if `valid` is empty
    holdout: float = option(0.1, gt=0, lt=1)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    length: int = option(128, ge=3, le=LONGEST_ROW)  # BOS, EOS and one token of text are 3
    packing: str = option("wrap", among=PACKINGS)
    # share of training rows that are cut to a random length
    shorten: float = option(0.0, ge=0, lt=1)
    separator: str = AUTO  # or "paragraph", "line", "file", or a line between documents
    text_field: str = "text"
    detokenizer: str = option("", among=("", *DETOKENIZERS))  # "": none
    label_field: str = ""  # "": documents have no class label
    # share of labelled rows that train without their class label, or whose first token is never
    # masked
    label_dropout: float = option(0.1, ge=0, lt=1)
    label_given: float = option(0.0, ge=0, le=1)
    source_field: str = ""  # "": documents are not pairs
    target_field: str = ""
    # the model also predicts EOS from the target's end to the row's end; behind the last answer of a
    # chat a random number of them, which weigh as one token
    fill_target: bool = True
    messages_field: str = ""  # "": documents are no chats
    cache: str = ""  # "": $UNMASK_CACHE, or ~/.cache/unmask
    # largest allowed share of unreadable lines or records, which are skipped
    corrupt: float = option(0.01, ge=0, le=1)
    workers: int = option(1, ge=0, le=1024)  # processes that tokenise; 0: one per core
    intervals: str = ""  # BED file of the training regions of a genome; "": all of it
    exclude: str = ""  # BED file of regions that neither training nor validation reads
    holdout_intervals: str = ""  # BED file of the validation regions, which training leaves out
    # share of training rows that are read from the other strand
    reverse_complement: float = option(0.0, ge=0, le=1)
    held_out_digest: str = ""  # training writes it: a hash of the rows that it did not train on

    def __post_init__(self) -> None:
        if not self.train:
            raise UnmaskError("data.train is empty; give a file, a folder or builtin:pydoc")
        check_options(self, "data.")
        if not self.separator.strip():
            raise UnmaskError("data.separator is empty; give auto, paragraph, line, file or a line")
        if not self.text_field:
            raise UnmaskError('data.text_field is empty; the usual name is "text"')
        if self.label_field and self.packing in SHARED:
            raise UnmaskError(
                "data.label_field needs one document per row: "
                "set data.packing to pad, or to split for long documents"
            )
        self._check_pairs()
        self._check_chats()
        self._check_genome()

    @property
    def portions(self) -> tuple[Portion, ...]:
        """The training sources with their weights: one, or those of a mixture."""
        return (Portion(self.train),) if isinstance(self.train, str) else self.train

    @property
    def trained_on(self) -> str:
        """The names of the training sources, with the weights of a mixture."""
        if isinstance(self.train, str):
            return self.train
        return " + ".join(f"{portion.weight:g} × {portion.text}" for portion in self.train)

    @property
    def paired(self) -> bool:
        """True if rows are pairs: the source is given, the target is predicted."""
        return bool(self.source_field)

    @property
    def window(self) -> int:
        """The bases of a row with the packing windows; 0 with another packing."""
        return self.length * getattr(self.tokenizer, "k", 1) if self.packing == WINDOWS else 0

    def _check_genome(self) -> None:
        if self.packing == WINDOWS and (self.label_field or self.shorten):
            raise UnmaskError(
                "data.packing windows has no class tokens and no EOS: "
                "leave data.label_field and data.shorten out, or set data.packing pad"
            )
        if self.holdout_intervals and self.valid:
            raise UnmaskError(
                "data.valid and data.holdout_intervals both name validation data: leave one out"
            )
        if self.reverse_complement and (self.packing in SHARED or self.paired):
            raise UnmaskError(
                "data.reverse_complement needs one sequence per row: "
                "set data.packing to windows, split or pad"
            )

    def _check_chats(self) -> None:
        if self.messages_field and self.packing not in ("pad", "fit"):
            raise UnmaskError(
                "data.messages_field needs whole chats: set data.packing to pad, or to fit for several "
                "chats per row"
            )
        others = (self.source_field, self.label_field, self.detokenizer, self.shorten)
        if self.messages_field and any(others):
            raise UnmaskError(
                "data.messages_field goes with no pairs, labels, detokenizer or shorten: leave them out"
            )

    def _check_pairs(self) -> None:
        if bool(self.source_field) != bool(self.target_field):
            raise UnmaskError("data.source_field and data.target_field need each other: set both")
        if self.paired and self.source_field == self.target_field:
            raise UnmaskError(
                f"data.source_field and data.target_field are both {self.source_field!r}: "
                "name two fields"
            )
        if self.paired and self.packing != "pad":
            raise UnmaskError("data.source_field needs one pair per row: set data.packing to pad")
        if self.paired and self.shorten:
            raise UnmaskError("data.shorten does not apply to pairs: set it to 0")
        if self.paired and self.label_field:
            raise UnmaskError("data.label_field does not apply to pairs: leave it empty")
        if self.paired and self.detokenizer:
            raise UnmaskError("data.detokenizer does not apply to pairs: leave it empty")
