"""Genomic Benchmarks (Grešová et al., 2023): classification of human DNA by a fine-tuned model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError, unknown
from unmask.evaluation.suites.suite import SUITES, Progress, Suite, column
from unmask.extensions.dna.genomic_sets import FEWEST, OFFICIAL, Examples, Labelled, read_task
from unmask.options import check_options, option

if TYPE_CHECKING:
    from unmask.model import Model
    from unmask.representation.classifier import Bundle

_HELD = 0.1  # share of the training rows that choose the epoch


@dataclass(frozen=True)
class Accuracy:
    """Test accuracy of one task over several seeds."""

    task: str
    accuracy: float = column(format=".3f")  # mean over the seeds
    spread: float = column(title="max − min", format=".3f")  # over the seeds
    low: float = column(title="95% from", format=".3f")  # over the test rows
    high: float = column(title="to", format=".3f")
    seeds: int = column()
    train: int = column(title="train rows")
    test: int = column(title="test rows")
    share: float = column(
        title="of the set", format=".1%"
    )  # share of the official rows that is here
    cut: int = column(shown=False)  # sequences that are longer than the model's rows
    by_seed: tuple[float, ...] = column(shown=False)


@SUITES.register("genomic-benchmarks")
class GenomicBenchmarks(Suite):
    """Accuracy on the Genomic Benchmarks of a model of DNA, fine-tuned on each task."""

    Row = Accuracy
    examples = (
        "runs/dna --data genomic-benchmarks.tar.xz",
        "runs/dna --data tasks --tasks human_enhancers_cohn --limit 200 --epochs 1 --seeds 2",
    )

    @dataclass(frozen=True)
    class Options:
        data: str = option("", help="folder of TASK.train.tsv and TASK.test.tsv, or a tar archive")
        tasks: tuple[str, ...] = option(
            (), metavar="TASK", help="some of the tasks; by default all"
        )
        seeds: int = option(5, ge=1, help="number of splits into training and validation rows")
        seed: int = option(0, ge=0, help="first seed")
        epochs: int = option(10, ge=1, help="passes over the training rows")
        batch: int = option(128, ge=1, help="sequences of an optimizer step")
        lr: float = option(1e-3, gt=0, help="learning rate")
        limit: int = option(0, ge=0, help="most training rows and most test rows; 0 takes all")

        def __post_init__(self) -> None:
            check_options(self)
            if not self.data:
                raise UnmaskError("the suite reads files: give --data FOLDER or a tar archive")
            for task in self.tasks:
                if task not in OFFICIAL:
                    raise unknown("task", task, OFFICIAL)

    def rows(self, model: "Model", options: Any, progress: Progress) -> Iterator[Accuracy]:
        """Fine-tunes and tests the model on each task."""
        if model.tokenizer.vocabulary.complement_ids is None:
            raise UnmaskError(
                "genomic-benchmarks needs a model of DNA: train it with tokenizer dna"
            )
        chosen = options.tasks or tuple(OFFICIAL)
        found = {task: read_task(Path(options.data), task, options.limit) for task in chosen}
        usable = {task: examples for task, examples in found.items() if examples is not None}
        if not usable:
            raise UnmaskError(
                f"{options.data} holds no TASK.train.tsv and TASK.test.tsv of {', '.join(chosen)}"
            )
        progress.expect(list(usable))
        for task, examples in usable.items():
            here = examples.rows / sum(OFFICIAL[task])
            progress.say(
                f"{task}: {examples.rows:,} of {sum(OFFICIAL[task]):,} rows ({here:.1%}) are here"
            )
            if examples.fewest < FEWEST and not options.limit:
                progress.say(f"{task} is left out: a class has {examples.fewest} training rows")
                continue
            yield _measured(model, task, examples, options)

    def notes(self, rows: Sequence[Accuracy]) -> list[str]:
        """The meaning of the columns."""
        return [
            "accuracy: mean over seeds of the split into 90% training and 10% validation rows; the "
            "test rows are fixed.",
            "95%: interval of the accuracy over the test rows (Wilson). Differences inside it are no "
            "order.",
        ]


def _measured(model: "Model", task: str, examples: Examples, options: Any) -> Accuracy:
    from unmask.evaluation.metrics.bootstrap import share

    seeds = range(options.seed, options.seed + options.seeds)
    found = [_accuracy(model, examples, options, seed) for seed in seeds]
    accuracies = [accuracy for accuracy, _ in found]
    interval = share([mean(accuracies)] * len(examples.test))
    return Accuracy(
        task,
        mean(accuracies),
        max(accuracies) - min(accuracies),
        interval.low,
        interval.high,
        len(found),
        len(examples.train),
        len(examples.test),
        examples.rows / sum(OFFICIAL[task]),
        found[0][1],
        tuple(accuracies),
    )


def _accuracy(model: "Model", examples: Examples, options: Any, seed: int) -> tuple[float, int]:
    """Test accuracy of one fine-tuning with the epoch of the best validation,
    and the cut sequences.
    """
    import numpy as np

    from unmask.representation.classifier import classifier_of, fine_tune, rows_for
    from unmask.training.fine_tune import FineTuning

    order = np.random.default_rng(seed).permutation(len(examples.train))
    held = max(1, round(_HELD * len(order)))
    valid, train = ([examples.train[i] for i in part] for part in (order[:held], order[held:]))
    classifier = classifier_of(
        model, len(examples.classes), seed=seed, pooling="mean", pooler=False, dropout=0.0
    )
    settings = FineTuning(
        lr=options.lr,
        epochs=options.epochs,
        batch=options.batch,
        warmup=0.1,
        precision=model.precision,
        seed=seed,
    )
    texts, targets = zip(*train, strict=True)

    def share(rows: Labelled) -> float:
        return _share(classifier, rows, options.batch)

    fine_tune(classifier, texts, targets, settings, score=lambda: share(valid))
    cut = rows_for(classifier, [text for text, _ in examples.test]).cut
    return share(examples.test), cut


def _share(classifier: "Bundle", examples: Labelled, batch: int) -> float:
    """The share of right classes, by the mean of the logits of both strands."""
    import torch

    from unmask.extensions.dna.dna_tokenizer import reverse_complement
    from unmask.methods.sequence_classifier import as_classifier
    from unmask.representation.classifier import rows_for
    from unmask.training.fine_tune import predict

    method = as_classifier(classifier.method)
    assert method is not None
    texts = [text for text, _ in examples]
    strands = (texts, [reverse_complement(text) for text in texts])
    plus, minus = (predict(method, rows_for(classifier, each), batch) for each in strands)
    wanted = torch.tensor([target for _, target in examples])
    return float(((plus + minus).argmax(-1) == wanted).double().mean())
