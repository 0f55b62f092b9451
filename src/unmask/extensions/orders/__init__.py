"""Learned orders: a policy chooses the positions that a model writes first; its training and sampler."""

from unmask.extension import Attachment, Extension

EXTENSION = Extension(
    __name__,
    {"sampler": {"learned_order": ".learned_order"}},
    commands={"train-order": ".train_order"},
    attachments={
        "order_policy": Attachment(
            kind=f"{__name__}.order_policy:OrderPolicy",
            file="order.safetensors",
            sampler="learned_order",
            field="policy",
            help="policy of 'unmask train-order', which chooses the positions to write in each step",
            stored="policy of 'unmask train-order' to add, for the sampler learned_order",
            remedy="train one with 'unmask train-order MODEL'",
        )
    },
)
