"""Requests that a model or a sampler cannot serve, with the remedy for each."""

from unmask.bundle import Bundle
from unmask.errors import refuse
from unmask.generation.prompts import FillRequest
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.method import methods_that
from unmask.samplers.sampler import Sampler


def refuse_sampler(
    bundle: Bundle, job: FillRequest, sampling: SamplingParams, chosen: Sampler, outer: Sampler
) -> None:
    """Raises an error if a sampler cannot write the rows of a request.

    Args:
        bundle: The model.
        job: The rows.
        sampling: The options.
        chosen: The sampler of the options.
        outer: The same sampler, in windows if the rows are longer than the model's.
    """
    head = bundle.method.backbone.predicts_length
    first = sampling.ending == "first" and not head
    pairs = job.target_only and job.ends and bundle.method.capabilities.any_order
    guided = sampling.guide is not None or sampling.label is not None or sampling.guidance != 1
    refuse(
        (
            chosen.blocks and bundle.method.capabilities.blocks and guided,
            "the sampler blocks needs a model of block_diffusion without guidance: give another "
            "sampler, such as semi_autoregressive",
        ),
        (
            bundle.conditional and chosen.windowed,
            "a target is written in one row: give a sampler without windows",
        ),
        (
            head and not job.ends,
            "the length head predicts where a target ends: leave stop out, or give a model without a "
            "length head",
        ),
        (
            head and outer.revises,
            "a sampler that revises may change the predicted length of a target: give another "
            "sampler, such as confidence",
        ),
        (
            first and not pairs,
            "ending first is for diffusion models of pairs, whose rows hold EOS behind a target: "
            "give ending free",
        ),
        (
            first and outer.revises,
            "a sampler that revises may change where a text ends: give ending free",
        ),
        (
            not (head or first) and outer.unwrapped().revises and sampling.strategy == "hybrid",
            "strategy hybrid needs a tail, which a sampler that revises lacks: give strategy "
            "stochastic or deterministic",
        ),
        (
            not (head or first) and job.revisable and not outer.rewrites,
            "no token of the text is to be rewritten: give remask, remask_span or remask_uncertain, "
            "or sampler gibbs, which revises a finished text",
        ),
    )


def refuse_constraint(bundle: Bundle, sampling: SamplingParams) -> None:
    """Raises an error if a model cannot write a text under a constraint."""
    can = bundle.method.capabilities
    kind = "diffuses vectors" if can.latent else "rewrites tokens in every step"
    refuse(
        (
            not can.writes_once,
            f"a model that {kind} takes no regex, ban, include or allowed: leave them out, or give a "
            f"model of method {methods_that(lambda can: can.writes_once)}",
        ),
        (
            bundle.method.backbone.predicts_length,
            "a constraint may need a longer text than the length head predicts: leave the constraint "
            "out, or train with backbone.length_head false",
        ),
        (
            sampling.ending == "first",
            "a constraint may need a longer text than ending first fixes: give ending free",
        ),
    )
