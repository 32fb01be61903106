"""JupyterLab as `make lab` opens it: at the first notebook, without the text sources beside the notebooks, and (as
overrides.json says) with widgets stored in a notebook that is saved, so that its figures outlive their kernel.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
c = get_config()  # type: ignore[name-defined]  # noqa: F821 - Jupyter's
c.ServerApp.root_dir = str(HERE.parents[1] / "notebooks")
c.LabApp.default_url = "/lab/tree/before_the_first_lab.ipynb"
c.ContentsManager.hide_globs = ["__pycache__", "*.pyc", ".DS_Store", "*~", "*.md"]
c.LabApp.app_settings_dir = str(HERE)
