"""Run the tutorials in an empty folder and keep what they print: python docs/tutorials/execute.py"""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = [Path(__file__).with_name(f"{name}.ipynb") for name in ("train", "sample", "evaluate")]


def executed(notebook: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of a run in `folder`; a cell that fails raises."""
    content = nbformat.read(notebook, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(content, timeout=300, resources=where, record_timing=False)
    return client.execute(cwd=str(folder))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for notebook in NOTEBOOKS:
            nbformat.write(executed(notebook, Path(folder)), notebook)


if __name__ == "__main__":
    main()
