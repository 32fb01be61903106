"""JupyterLab as `make lab` opens it: at the contents, without the text sources beside the notebooks, and (as
overrides.json says) with widgets stored in a notebook that is saved, so that its figures outlive their kernel.
"""

from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class Contents(AsyncLargeFileManager):
    """A notebook says of its language what the kernel will say: with another version JupyterLab would call it unsaved."""

    async def get(self, path: str, content: bool = True, *args: Any, **options: Any) -> Any:
        model = await super().get(path, content, *args, **options)
        if content and model["type"] == "notebook":
            model["content"]["metadata"]["language_info"] = dict(IPythonKernel.language_info)
        return model


HERE = Path(__file__).resolve().parent
c = get_config()  # type: ignore[name-defined]  # noqa: F821 - Jupyter's
c.ServerApp.root_dir = str(HERE.parents[1] / "notebooks")
c.ServerApp.contents_manager_class = Contents
c.LabApp.default_url = "/lab/tree/00_contents.ipynb"
c.ContentsManager.hide_globs = ["__pycache__", "*.pyc", ".DS_Store", "*~", "*.md"]
c.LabApp.app_settings_dir = str(HERE)
