"""Tables of the MDLM paper at a small scale, next to the published figures."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, commands={"reproduce": ".reproduce"})
