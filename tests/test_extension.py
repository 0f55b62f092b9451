"""Manifests: each names what its extension adds, and costs nothing until a name is used."""

import re
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from without_extension import without

from unmask import cli, extension, recipes
from unmask.errors import UnmaskError
from unmask.extension import Extension, extensions
from unmask.registry import Registry

REGISTRIES = [
    *("model", "generation.context", "evaluation.suites.suite", "training.logs.loggers"),
    "data.sources.registered_forms",
]  # and what these import
MODULE = """
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.sampler import SAMPLERS

@SAMPLERS.register("kite")
class Kite(Ancestral):
    '''Ancestral sampling by another name.'''
"""
COMMAND = """
def add(commands):
    parser = commands.add_parser("fly", help="fly a kite")
    parser.set_defaults(execute=lambda args: print("flying"))
"""


def test_a_manifest_names_all_that_its_modules_register():
    for module in REGISTRIES:
        import_module(f"unmask.{module}")
    for registry in Registry.registries:
        for name in registry:
            module = registry[name].__module__
            owners = [each for each in extensions() if module.startswith(f"{each.package}.")]
            for owner in owners:
                assert list(owner.modules(registry.kind, name)) == [module], name
    for each in extensions():
        kinds = {registry.kind: registry for registry in Registry.registries}
        for kind, names in each.components.items():
            assert set(names) <= set(kinds[kind]), each.name


def test_manifests_import_no_torch():
    code = "import sys; from unmask.extension import extensions as e; e(); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


@pytest.fixture
def kites(tmp_path, monkeypatch):
    """An installed package `kites` with a manifest, found by its entry point."""
    folder = tmp_path / "kites"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes" / "calm.yaml").write_text("# A day without wind.\nbase: demo\n")
    (folder / "__init__.py").write_text("")
    (folder / "wind.py").write_text(MODULE)
    (folder / "fly.py").write_text(COMMAND)
    monkeypatch.syspath_prepend(str(tmp_path))
    manifest = Extension("kites", {"sampler": {"kite": ".wind"}}, {"fly": ".fly"})
    entry = SimpleNamespace(value="kites:MANIFEST", attr="MANIFEST", load=lambda: manifest)
    monkeypatch.setattr(extension, "entry_points", lambda group: [entry])
    for registry in Registry.registries:
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    caches = (extensions, extension.commands, extension.import_components, extension.attachments)
    for cached in caches:
        cached.cache_clear()
    yield manifest
    for cached in caches:
        cached.cache_clear()
    for name in [name for name in sys.modules if re.match(r"kites\b", name)]:
        del sys.modules[name]


def test_an_installed_package_adds_components_commands_and_recipes(kites, capsys):
    from unmask.samplers.sampler import SAMPLERS

    assert "kites.wind" not in sys.modules
    assert SAMPLERS["kite"].__name__ == "Kite" and "kite" in SAMPLERS
    assert cli.main(["fly"]) == 0 and capsys.readouterr().out == "flying\n"
    assert recipes.summaries()["calm"] == "A day without wind."
    assert recipes.locate("calm").parent.parent.name == "kites"


def test_a_module_that_cannot_be_imported_is_named(kites):
    from unmask.samplers.sampler import SAMPLERS

    (kites.folder / "wind.py").write_text("import nothing_here")
    with pytest.raises(UnmaskError, match=r"the plugin kites\.wind cannot be imported: ModuleNot"):
        SAMPLERS["kite"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in extensions()])
def test_an_extension_can_be_deleted(name, tmp_path):
    assert without(name, tmp_path, quick=True)
