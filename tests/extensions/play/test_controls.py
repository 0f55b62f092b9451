"""Controls of the page: one for each sampling option that is declared for it."""

from unmask.extensions.play.controls import menu
from unmask.generation.sampling_params import SamplingParams
from unmask.options import options_of
from unmask.samplers.core.token_sampler import STRATEGIES


def test_the_playground_has_a_control_for_each_declared_option(model):
    controls = {control["name"]: control for control in menu({"tiny": model})["options"]}
    assert controls.keys() == {one.name for one in options_of(SamplingParams, "play")}
    assert all(control["help"] for control in controls.values())
    assert (controls["top_p"]["kind"], controls["top_p"]["max"]) == ("float", 1)
    assert controls["strategy"]["choices"] == list(STRATEGIES)
