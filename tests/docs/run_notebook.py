"""Execute a notebook in a process of its own: `python run_notebook.py IN OUT FOLDER`.

A client of Jupyter leaves sockets and threads behind, which the test process treats as errors. The kernel is reached
over Unix sockets.
"""

from __future__ import annotations

import sys

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient


def main(source: str, target: str, folder: str) -> None:
    notebook = nbformat.read(source, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
    resources = {"metadata": {"path": folder}}
    # by default, output that takes longer than four seconds to arrive is dropped without a word
    patience = {"timeout": 240, "iopub_timeout": 120, "raise_on_iopub_timeout": True}
    NotebookClient(notebook, km=manager, resources=resources, **patience).execute()
    for cell in notebook.cells:  # without times and versions, which would make every run a change
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
