"""Documents of a dataset on the Hugging Face hub."""

from collections.abc import Iterator

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.corpus import SOURCES, Corpus, Source, hash_documents
from unmask.errors import UnmaskError
from unmask.files.hub import offline_if_unreachable
from unmask.imports import extra


@SOURCES.register("hf:")
class HubDataset(Source):
    """A dataset of the Hugging Face hub: hf:OWNER/NAME[/CONFIG][:SPLIT]."""

    anywhere = True

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The corpus of a dataset. A name with one slash is OWNER/NAME, never NAME/CONFIG."""
        path, _, split = spec.partition(":")
        parts = path.split("/")
        repository, config = "/".join(parts[:2]), "/".join(parts[2:]) or None
        return hub_corpus(spec, fields, repository, config, split=split or "train")


def hub_corpus(name: str, fields: Fields, *arguments: str | None, **options: str) -> Corpus:
    """The corpus of a hub dataset; `arguments` and `options` are those of `load_dataset`."""
    faults = ReadErrors(fields.corrupt)

    def read() -> Iterator[str]:
        datasets = extra("datasets", f"hf:{name}")
        try:
            with offline_if_unreachable(datasets, f"hf:{name}"):
                rows = datasets.load_dataset(*arguments, **options)
        except ConnectionError:
            raise UnmaskError(
                f"the dataset hf:{name} is not in the local cache, and the hub cannot be reached"
            ) from None
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a dataset script
            reason = str(error).strip().partition("\n")[0]
            raise UnmaskError(f"the dataset hf:{name} cannot be loaded: {reason}") from None
        columns = fields.columns(rows.column_names, f"the dataset hf:{name}")
        names = getattr(rows.features.get(fields.label_field), "names", None)  # of a ClassLabel
        for number, row in enumerate(rows.select_columns(columns), start=1):
            if names:
                row[fields.label_field] = _label_name(names, row[fields.label_field])
            faults.seen += 1
            yield faults.document(fields.document, row, f"hf:{name}, record {number}")

    return Corpus(f"hf:{name}", read, lambda: hash_documents(read()), True, faults)


def _label_name(names: list[str], index: int | None) -> str | None:
    """The class label at an index; None for a missing index or -1."""
    return None if index is None or index < 0 else names[index]
