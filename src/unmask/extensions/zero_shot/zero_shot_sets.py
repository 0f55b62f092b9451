"""Data sets of the zero-shot suite: files, hub names and preprocessing.

The table `SETS` holds everything that a zero-shot perplexity depends on beside the model. Its seven
sets are those of Table 3 of the MDLM paper, prepared as in the authors' zero-shot scripts.
"""

from dataclasses import dataclass
from pathlib import Path

from unmask.data.documents.detokenizers import DETOKENIZERS
from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import Corpus
from unmask.data.sources.hub_dataset import hub_corpus
from unmask.data.sources.line_reader import matching_files
from unmask.errors import UnmaskError, unknown
from unmask.extensions.zero_shot.benchmark_files import Columns, Form, Lines, Objects, file_corpus

# The hub's revision with Parquet copies of datasets that are scripts, which must not be run.
_CONVERTED = "refs/convert/parquet"


@dataclass(frozen=True)
class Hub:
    """A data set on the Hugging Face hub: repository, configuration, split and field."""

    repository: str
    split: str
    field: str = "text"
    config: str = ""
    converted: bool = False

    def __str__(self) -> str:
        return f"hf:{'/'.join(filter(None, (self.repository, self.config)))}:{self.split}"

    def corpus(self) -> Corpus:
        """The documents of the set. They are fetched when they are read."""
        reading, name = Fields("line", self.field), str(self).removeprefix("hf:")
        if not self.converted:
            return hub_corpus(name, reading, self.repository, self.config or None, split=self.split)
        options = {"data_dir": self.config, "revision": _CONVERTED, "split": self.split}
        return hub_corpus(name, reading, self.repository, **options)


@dataclass(frozen=True)
class File:
    """A file of a set in a folder: its name, its form, and its difference from the full set."""

    name: str
    form: Form
    note: str = ""


@dataclass(frozen=True)
class ZeroShotSet:
    """The files, the hub name and the preprocessing of a data set."""

    title: str
    split: str
    unit: str  # name of a document of the set
    files: tuple[File, ...]
    hub: Hub | None = None
    detokenizer: str = ""
    eos: bool = False  # True for EOS between documents

    @property
    def packing(self) -> str:
        return "wrap" if self.eos else "join"

    @property
    def preprocessing(self) -> str:
        """The preprocessing in words."""
        detokenized = f"detokenizer {self.detokenizer}" if self.detokenizer else "as it is"
        return (
            f"{self.split}, {detokenized}, {'EOS' if self.eos else 'no EOS'} between {self.unit}s"
        )


_LINE, _WHOLE_LINE = Lines(), Lines(whole=True)
_SAMPLE = "a sample, from validation and test"
_UNKNOWN_WORDS = "rare words are <unk>: not the paper's raw text"


def _papers(subject: str) -> ZeroShotSet:
    """The set of scientific papers of one subject.
    The sentences of an article are joined by line ends.
    """
    form, key = Objects("article_text"), subject.lower()
    return ZeroShotSet(
        subject,
        "validation",
        "article",
        (
            File(f"scientific_papers_{key}.valid.jsonl", form),
            File(f"{key}-dataset/val.txt", form),
            File(f"scientific_papers_{key}.sample.jsonl", form, _SAMPLE),
        ),
        Hub("armanc/scientific_papers", "validation", "article", key, converted=True),
        detokenizer="scientific_papers",
    )


SETS = {
    "ptb": ZeroShotSet(
        "PTB",
        "validation",
        "line",
        (File("ptb.valid.txt", _LINE),),
        Hub(
            "ptb-text-only/ptb_text_only", "validation", "sentence", "penn_treebank", converted=True
        ),
        detokenizer="ptb",
    ),
    "wikitext": ZeroShotSet(
        "WikiText",
        "validation",
        "line",
        (
            File("wiki.valid.raw", _WHOLE_LINE),
            File("wikitext-103-raw/wiki.valid.raw", _WHOLE_LINE),
            File("wikitext103.valid.tokens", _WHOLE_LINE, _UNKNOWN_WORDS),
            File("wikitext-103/wiki.valid.tokens", _WHOLE_LINE, _UNKNOWN_WORDS),
        ),
        Hub("Salesforce/wikitext", "validation", config="wikitext-103-raw-v1"),
        detokenizer="wikitext",
    ),
    "lm1b": ZeroShotSet(
        "LM1B",
        "test",
        "line",
        (
            File("lm1b.test.txt", _LINE),
            File("news.en.heldout-?????-of-?????", _LINE),
            File("heldout-monolingual.tokenized.shuffled/news.en.heldout-?????-of-?????", _LINE),
        ),
        Hub("dvruette/lm1b", "test"),
        detokenizer="lm1b",
    ),
    "lambada": ZeroShotSet(
        "LAMBADA",
        "test",
        "passage",
        (File("lambada.test.jsonl", Objects()), File("lambada_test.jsonl", Objects())),
        Hub("EleutherAI/lambada_openai", "test", config="default"),
        detokenizer="lambada",
    ),
    "ag_news": ZeroShotSet(
        "AG News",
        "test",
        "item",
        (File("ag_news.test.csv", Columns(3, (1, 2))),),  # class, title, description
        Hub("fancyzhx/ag_news", "test"),
    ),
    "pubmed": _papers("PubMed"),
    "arxiv": _papers("arXiv"),
}

# Further sets: stand-ins for sets of the paper, and text similar to common training sets.
MORE_SETS = {
    "pubmed-abstracts": ZeroShotSet(
        "PubMed abstracts",
        "PubMedQA",
        "abstract",
        (File("pubmed-abstracts.1000.txt", _LINE, "a stand-in: abstracts, not articles"),),
    ),
    "openwebtext": ZeroShotSet(
        "OpenWebText",
        "last 100,000",
        "document",
        (
            File(
                "openwebtext.first-1000.jsonl",
                Objects(),
                "a sample: the first 1,000, which the paper trains on",
            ),
        ),
        Hub("Skylion007/openwebtext", "train[-100000:]"),
        eos=True,
    ),
    "c4": ZeroShotSet(
        "C4",
        "validation",
        "document",
        (File("c4.sample-1000.jsonl", Objects(), "a sample: 1,000 documents"),),
        Hub("allenai/c4", "validation", config="en"),
        eos=True,
    ),
}


def zero_shot_set(name: str) -> ZeroShotSet:
    """The set of a name; raises an error for an unknown one."""
    known = {**SETS, **MORE_SETS}
    if name not in known:
        raise unknown("zero-shot set", name, known)
    return known[name]


def find(wanted: ZeroShotSet, folder: Path | None) -> tuple[Corpus, str]:
    """The corpus of a set, from a folder or else from the hub,
    and its difference from the full set.
    """
    if folder is None:
        if wanted.hub is None:
            raise UnmaskError(
                f"the set is not on the hub: give a folder that holds {wanted.files[0].name}"
            )
        return wanted.hub.corpus(), ""
    for file in wanted.files:
        if paths := matching_files(folder, file.name):
            return file_corpus(paths, file.form), file.note
    instead = f"; leave the folder out to read {wanted.hub}" if wanted.hub else ""
    raise UnmaskError(f"no {wanted.files[0].name} or other file of the set in {folder}{instead}")


def coverage(corpus: Corpus, detokenizer: str, characters: int) -> tuple[int, float]:
    """Documents, and words before detokenization, in the first `characters` of detokenized text.

    The words of a cut document count by its share of characters.
    """
    detokenize = DETOKENIZERS.build(detokenizer) if detokenizer else str
    documents, words = 0, 0.0
    for document in corpus:
        if characters <= 0:
            break
        text = detokenize(document)
        if text and not text.isspace():
            documents += 1
            words += len(document.split()) * min(1.0, characters / len(text))
            characters -= len(text)
    return documents, words
