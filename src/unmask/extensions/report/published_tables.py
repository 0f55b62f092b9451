"""The figures of the MDLM paper (arXiv 2406.07524), by table."""

from dataclasses import dataclass

CONTINUOUS = "∞"  # Table 11's last row


@dataclass(frozen=True)
class Published:
    """A table of the paper: title, experimental setting and a figure for each row."""

    title: str
    setting: str
    figures: dict[str, float]


TABLE_1 = Published(
    "Table 1: test perplexity on LM1B",
    "110M parameters, 33B tokens of LM1B; D3PM is its own authors' model of 70M parameters",
    {"ar": 22.32, "mdlm": 27.04, "sedd": 32.79, "d3pm": 76.90},
)
TABLE_8 = Published(
    "Table 8: ablation of MDLM, test perplexity on LM1B",
    "110M parameters, 33B tokens of LM1B; each row removes one more component",
    {"mdlm": 27.04, "mdlm-1000": 27.19, "no-carry-over": 28.56, "d3pm": 28.51},
)
TABLE_11 = Published(
    "Table 11: perplexity by the number of steps T of the bound, on OpenWebText",
    "one MDLM of 110M parameters without time conditioning, 262B tokens of OpenWebText",
    {
        "10": 42.18,
        "20": 30.70,
        "50": 25.77,
        "100": 24.35,
        "200": 23.66,
        "500": 23.26,
        "1000": 23.15,
        CONTINUOUS: 23.05,
    },
)
SCHEDULES_BOUND = 3.30  # nats under every schedule: the logarithm of Table 1's 27.04
SCHEDULES = Published(
    "Noise schedules (appendix): variance of the bound's estimate",
    "one MDLM of 110M parameters, the same bound of 3.30 under each schedule",
    {"loglinear": 1.81, "cosine": 3.30, "cosine_squared": 3.30, "linear": 7.57},
)

PUBLISHED = {"table1": TABLE_1, "table8": TABLE_8, "table11": TABLE_11, "schedules": SCHEDULES}
