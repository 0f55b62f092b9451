"""Zero-shot perplexity: the data sets of Table 3 of the MDLM paper, prepared as there, as a suite."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, {"suite": {"zero-shot": ".zero_shot"}})
