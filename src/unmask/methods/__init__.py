"""Methods: each has a bound on the likelihood for training and a denoiser for samplers."""

from unmask.methods.autoregressive import Autoregressive
from unmask.methods.d3pm import D3PM
from unmask.methods.d3pm_uniform import D3PMUniform
from unmask.methods.diffusion_bert import DiffusionBERT
from unmask.methods.distilled import DistilledMDLM, with_teacher
from unmask.methods.duo import Duo, DuoDistilled
from unmask.methods.latent.analog_bits import AnalogBits
from unmask.methods.latent.diffusion_lm import DiffusionLM
from unmask.methods.latent.plaid import Plaid
from unmask.methods.latent.ssd_lm import SSDLM
from unmask.methods.mdlm import MDLM
from unmask.methods.method import METHODS, Losses, Method
from unmask.methods.mlm import MLM
from unmask.methods.sedd import SEDD
from unmask.methods.sequence_classifier import SequenceClassifier
from unmask.methods.sundae import SUNDAE
from unmask.methods.token_classifier import TokenClassifier
from unmask.methods.udlm import UDLM

__all__ = [
    "D3PM",
    "MDLM",
    "METHODS",
    "MLM",
    "SEDD",
    "SSDLM",
    "SUNDAE",
    "UDLM",
    "AnalogBits",
    "Autoregressive",
    "D3PMUniform",
    "DiffusionBERT",
    "DiffusionLM",
    "DistilledMDLM",
    "Duo",
    "DuoDistilled",
    "Losses",
    "Method",
    "Plaid",
    "SequenceClassifier",
    "TokenClassifier",
    "with_teacher",
]
