"""One paper, one file: each method is a bound and a denoiser."""

from unmask.methods.autoregressive import Autoregressive
from unmask.methods.base import METHODS, Denoiser, Losses, Method
from unmask.methods.classifier import TokenClassifier
from unmask.methods.d3pm import D3PM
from unmask.methods.mdlm import MDLM
from unmask.methods.sedd import SEDD

__all__ = [
    "D3PM",
    "MDLM",
    "METHODS",
    "SEDD",
    "Autoregressive",
    "Denoiser",
    "Losses",
    "Method",
    "TokenClassifier",
]
