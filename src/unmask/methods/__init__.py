"""Methods: each has a bound on the likelihood for training and a denoiser for samplers."""

from unmask.methods.autoregressive import Autoregressive
from unmask.methods.block_diffusion import BlockDiffusion
from unmask.methods.d3pm import D3PM
from unmask.methods.distilled import DistilledMDLM, with_teacher
from unmask.methods.mdlm import MDLM
from unmask.methods.method import METHODS, Losses, Method
from unmask.methods.mlm import MLM
from unmask.methods.sedd import SEDD
from unmask.methods.sequence_classifier import SequenceClassifier
from unmask.methods.token_classifier import TokenClassifier

__all__ = [
    "D3PM",
    "MDLM",
    "METHODS",
    "MLM",
    "SEDD",
    "Autoregressive",
    "BlockDiffusion",
    "DistilledMDLM",
    "Losses",
    "Method",
    "SequenceClassifier",
    "TokenClassifier",
    "with_teacher",
]
