"""Notebooks from their text: one way, executed, and provably in step.

`notebooks/NAME.md` (MyST Markdown, edited by people) is the source; `NAME.ipynb` beside it is made from it,
executed and committed with its outputs: it is what Colab opens, what nbval checks and what the book
renders. Its text is plain Markdown (`portable`), its folded code and covered answers are folded there too.

    python book/tools/notebooks.py run [--all] [PATH ...]   re-execute what is stale (all: everything), on a calm machine;
                                                            with --busy on any, and then its running time is not noted
    python book/tools/notebooks.py text [PATH ...]          give new prose to what has its code, executing nothing
    python book/tools/notebooks.py check [PATH ...]         say what is out of step; exit 1 if anything is
    python book/tools/notebooks.py uncover FOLDER           copies with covered answers in sight, which nbval compares

The metadata keep three hashes: `source_sha256` of the text, `code_sha256` of the files of labkit behind it (`closure`),
`outputs_sha256` of what came out (a number altered by hand shows even in a timing cell, which nbval ignores). `run` goes by
the code of the cells and the second; `check` by the first and the last: whether outputs still hold is nbval's question.
"""

import argparse
import json
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from jupytext.combine import map_outputs_to_inputs

sys.path.insert(0, str(Path(__file__).parent))  # also where this file is loaded by its path

import calm
import closure
import contents
import first_cell
import portable
from closure import digest

from labkit import machine
from labkit.show.predict import UNGUESSED

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("notebooks", "notebooks/exercises")
FRONT = ROOT / "notebooks" / f"{contents.FRONT}.ipynb"
CELL_TIMEOUT_S = 600
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {  # what a kernel says of itself, without its version
    "name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3",
}  # fmt: skip
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class Unfit(Exception):
    """A notebook that cannot be stored, and why."""


def code_digest(md: Path, root: Path = ROOT) -> str:
    """SHA-256 of the files of labkit behind the imports of `md` (`closure`), names included."""
    files = closure.behind(md.read_text(encoding="utf-8"), root)
    lines = (f"{p.relative_to(root).as_posix()} {digest(p.read_bytes())}\n" for p in files)
    return digest("".join(lines).encode())


def outputs_digest(nb: Any) -> str:
    """SHA-256 of all outputs and execution counts."""
    stored = [[c.execution_count, c.outputs] for c in nb.cells if c.cell_type == "code"]
    return digest(json.dumps(stored, sort_keys=True).encode())


def read_source(md: Path, address: str = "") -> Any:
    """The unexecuted notebook that the text `md` describes, with a first cell that installs from `address`."""
    nb = jupytext.read(md, fmt="md:myst")
    portable.undress_inplace(nb, md)
    first_cell.put_inplace(nb, address)
    nb.metadata.pop("jupytext", None)
    nb.metadata["kernelspec"] = dict(KERNELSPEC)
    nb.metadata["language_info"] = dict(LANGUAGE)
    nb.nbformat_minor = 5
    return nb


def convert(md: Path, address: str = "") -> Any:
    """The unexecuted notebook of `md`; cells that the present .ipynb already has keep their ids."""
    nb, old = read_source(md, address), stored(md.with_suffix(".ipynb")).cells
    for cell, j in zip(nb.cells, map_outputs_to_inputs(nb.cells, old), strict=True):
        before = old[j].get("id", "") if j is not None else ""
        if before and not any(name.startswith("labkit-") for name in (before, cell["id"])):  # a tool's own
            cell["id"] = before
    return nb


def execute(nb: Any, folder: Path, timeout: int = CELL_TIMEOUT_S) -> None:
    """Run every cell in this Python's own kernel, in `folder`; store the outputs in `nb`."""
    from ipykernel import kernelspec
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class ThisPython(KernelSpecManager):
        """Whatever kernels the user has installed under the name python3, run this interpreter."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            return KernelSpec(resource_dir=kernelspec.RESOURCES, **kernelspec.get_kernel_dict())

    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())
    settings = {"resources": {"metadata": {"path": str(folder)}}, "timeout": timeout}
    settings |= {"extra_arguments": ["--log-level=40"], "coalesce_streams": True}  # errors, no advice
    client = NotebookClient(nb, km=manager, store_widget_state=False, record_timing=False, **settings)
    client.execute(cleanup_kc=True)  # for the manager is ours


def tidy(nb: Any, source: Any) -> None:
    """Take out what changes from run to run or from machine to machine and says nothing."""
    nb.metadata = nbformat.from_dict(dict(source.metadata))
    for cell, text in zip(nb.cells, source.cells, strict=True):
        cell.metadata = nbformat.from_dict(dict(text.metadata))
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if len(data) > 1:
                data.pop(WIDGET_VIEW, None)  # a random id into a state that is not stored
            for kind in data.keys() & {"text/plain", "text/html"}:  # true of nobody who reads what is stored
                data[kind] = data[kind].replace(f" {UNGUESSED}", "")


def refuse_noise(nb: Any, root: Path) -> None:
    """Raise `Unfit` if an output shows where or on what machine it was made."""
    private = {
        re.escape(str(root)): "the path of this working tree",
        re.escape(sys.prefix): "the path of this environment",
        r"ipykernel_\d+": "a temporary file of this kernel",
    }
    if len(host := socket.gethostname()) > 3 and host != "localhost":
        private[rf"\b{re.escape(host)}\b"] = "the name of this machine"
    for n, cell in enumerate(code_cells(nb), 1):
        for pattern, what in private.items():
            if re.search(pattern, str(cell.outputs)):
                raise Unfit(f"code cell {n} prints {what} (matched {pattern!r}); print something stable")


def written(nb: Any) -> str:
    """The text of the file that stores `nb`."""
    return str(nbformat.writes(portable.covered(nb))).rstrip("\n") + "\n"


def replace(path: Path, text: str) -> bool:
    """Write all of `text` to the file, or nothing, unless it is what stands there; whether it was news."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8", newline="\n")
    new.replace(path)
    return True


def stored(ipynb: Path) -> Any:
    """The notebook `ipynb`; one without cells if there is none to read."""
    try:
        return portable.read(ipynb)
    except Exception:
        return nbformat.v4.new_notebook()


def address_for(md: Path, root: Path) -> str:
    """Where the notebook of `md` installs labkit from: what is known here, else what it knew before."""
    return first_cell.address(root) or first_cell.address_in(stored(md.with_suffix(".ipynb"))) or ""


def make(md: Path, root: Path = ROOT, timeout: int = CELL_TIMEOUT_S) -> None:
    """Convert `md`, execute it, and store the result beside it."""
    hashes = {"source_sha256": digest(md.read_bytes()), "code_sha256": code_digest(md, root)}
    address = address_for(md, root)
    source = read_source(md, address)
    for n, cell in enumerate(code_cells(source), 1):
        if cell.source.rstrip().endswith(";"):  # in nbval, which has no history, IPython shows the value
            raise Unfit(f"code cell {n} ends in a semicolon, which nbval ignores; end it with `_ = ...`")
    nb = convert(md, address)
    execute(nb, md.parent, timeout)
    tidy(nb, source)
    refuse_noise(nb, root)
    nb.metadata["labkit"] = hashes | {"outputs_sha256": outputs_digest(nb)}
    nbformat.validate(nb)
    replace(md.with_suffix(".ipynb"), written(nb))


def refresh(md: Path, root: Path = ROOT) -> bool:
    """Give the notebook of `md`, whose code has not changed, today's text, tags and address; whether that was news.

    Nothing is executed. Outputs altered by hand stay as they are, and are found by `check`.
    """
    ipynb = md.with_suffix(".ipynb")
    nb, old = convert(md, address_for(md, root)), stored(ipynb)
    for new, cell in zip(code_cells(nb), code_cells(old), strict=True):
        new.execution_count, new.outputs = cell.execution_count, cell.outputs
    hashes = recorded(ipynb) | {"source_sha256": digest(md.read_bytes())}
    whole = hashes["outputs_sha256"] == outputs_digest(nb)
    tidy(nb, nb)
    nb.metadata["labkit"] = hashes | ({"outputs_sha256": outputs_digest(nb)} if whole else {})
    return replace(ipynb, written(nb))


def front() -> str:
    """The text of the notebook that JupyterLab opens first: the labs in reading order (`contents.page`)."""
    cell = nbformat.v4.new_markdown_cell(contents.page(), id="contents")
    metadata = {"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE)}
    return written(nbformat.v4.new_notebook(cells=[cell], metadata=metadata))


def uncover(folder: Path) -> None:
    """Fill `folder` with copies of the notebooks that have all outputs in sight, as nbval wants them."""
    shutil.rmtree(folder, ignore_errors=True)
    for ipynb in (md.with_suffix(".ipynb") for md in contents.sources()):
        copied = folder / ipynb.relative_to(ROOT / "notebooks")
        copied.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(portable.read(ipynb), copied)


def recorded(ipynb: Path) -> dict[str, str]:
    """The hashes stored in `ipynb`; none if there are none to read."""
    return dict(stored(ipynb).metadata.get("labkit", {}))


def stale(md: Path, root: Path = ROOT) -> str:
    """Why `md` needs executing again; empty if it does not."""
    hashes = recorded(md.with_suffix(".ipynb"))
    if not hashes:
        return "it has not been executed"
    if recoded(md):
        return "its code has changed"
    return "labkit has changed" if hashes.get("code_sha256") != code_digest(md, root) else ""


def recoded(md: Path) -> bool:
    """Whether the notebook of `md` has other code than its text, whatever the cell says that installs labkit."""
    both = read_source(md), stored(md.with_suffix(".ipynb"))
    new, old = ([first_cell.is_first(c) or c.source for c in code_cells(nb)] for nb in both)
    return new != old


def record_time(name: str, seconds: float, root: Path = ROOT) -> None:
    """Note in book/run_times.json how long a notebook took, where and when; the map of the labs says it."""
    path = root / "book" / "run_times.json"
    times = json.loads(path.read_text(encoding="utf-8"))
    times[name] = {"seconds": round(seconds, 1), "where": machine.describe()}
    text = json.dumps(dict(sorted(times.items())), indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def code_cells(nb: Any) -> list[Any]:
    return [c for c in nb.cells if c.cell_type == "code"]


def problems(md: Path) -> list[str]:
    """What is out of step between `md` and the notebook beside it, one sentence each."""
    ipynb = md.with_suffix(".ipynb")
    if not md.exists():
        return [f"{ipynb.name} has no text source {md.name}: notebooks are made from text, never edited."]
    if not ipynb.exists():
        return [f"{md.name} has no {ipynb.name}: run `make notebooks` and commit it."]
    try:
        nb = portable.read(ipynb)
        shown = [c for c in code_cells(nbformat.read(ipynb, as_version=4)) if c.outputs]
        nbformat.validate(nb)
    except Exception as error:
        return [f"{ipynb.name} is not a valid notebook ({str(error).splitlines()[0]})."]
    if not nb.metadata.get("labkit"):
        return [f"{ipynb.name} was not made by `make notebooks`: it records no hashes."]
    found = [f"{ipynb.name} {what}." for what in out_of_step(md, nb)]
    if any("hide-output" in cell.metadata.get("tags", ()) for cell in shown):
        found.append(f"{ipynb.name} shows an answer beside its question: run `make notebooks`.")
    return found


def out_of_step(md: Path, nb: Any) -> Iterator[str]:
    """How the notebook `nb` differs from its text, and from what its run stored."""
    if nb.metadata["labkit"].get("source_sha256") != digest(md.read_bytes()):
        yield f"is older than {md.name}, which has changed since it was executed: run `make notebooks`"
    address, setting = first_cell.address_in(nb) or "", first_cell.address(ROOT)
    if setting and address != setting:
        yield f"installs labkit from {address!r}, not from {setting!r}: run `make notebooks`"
    both = read_source(md, address).cells, nb.cells
    wanted, there = ([(c.cell_type, c.source, dict(c.metadata)) for c in cells] for cells in both)
    if wanted != there:
        yield f"has cells, sources or tags other than those of {md.name}"
    if nb.metadata["labkit"].get("outputs_sha256") != outputs_digest(nb):
        yield "was stripped, or has outputs other than those its run stored"


def check(paths: list[Path]) -> int:
    found = [p for path in paths for p in problems(path)]
    if FRONT.read_text(encoding="utf-8") != front():
        found.append(f"{FRONT.name} differs from _toc.yml and book/index.md: run `make notebooks`.")
    for sentence in found:
        print(sentence)
    if not found:
        print(f"{len(paths)} notebooks are in step with their text.")
    return 1 if found else 0


def run(
    paths: list[Path], everything: bool = False, root: Path = ROOT, busy: bool = False, text: bool = False
) -> int:
    """Execute what is stale, and give the others their new text; the exit status, 1 if something is left as it was.

    busy: on a disturbed machine too, without noting how long it took. text: execute nothing.
    """
    left = 0
    for md in paths:
        why = "asked for" if everything else stale(md, root)
        if not why or (text and not recoded(md)):
            print(f"{md.stem}: " + ("new text" if refresh(md, root) else "in step"))
            continue
        refused = "Execute it (run)." if text else "" if busy else calm.disturbance()
        if refused:
            print(f"{md.stem}: NOT executed ({why}). {refused}", file=sys.stderr)
            left += 1
            continue
        print(f"{md.stem}: executing ({why}) ...", flush=True)
        began = time.perf_counter()
        try:
            make(md, root)
        except Exception as error:
            left += 1
            print(f"{md.stem}: NOT stored, the previous notebook stands.\n{error}", file=sys.stderr)
            continue
        seconds = time.perf_counter() - began
        if not busy:
            record_time(md.stem, seconds, root)
        print(f"{md.stem}: stored after {seconds:.1f} s")
    return 1 if left else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make, execute and check the notebooks.")
    parser.add_argument("task", choices=["run", "text", "check", "uncover"])
    parser.add_argument("--all", action="store_true", help="run: also what is in step")
    parser.add_argument("--busy", action="store_true", help="run: on a disturbed machine too")
    parser.add_argument("paths", nargs="*", type=Path, help="texts or notebooks (default: all of them)")
    args = parser.parse_intermixed_args(argv)
    chosen = [p.resolve().with_suffix(".md") for p in args.paths]
    if args.task == "uncover":
        uncover(args.paths[0])
        return 0
    if args.task != "check":
        replace(FRONT, front())
        missing = [p for p in chosen if not p.exists()]
        if missing:
            parser.error(f"there is no text source {missing[0]}")
        paths = chosen or contents.sources()
        return run(paths, args.all, busy=args.busy, text=args.task == "text")
    there = {p for folder in FOLDERS for p in (ROOT / folder).glob("*.ipynb")} - {FRONT}
    return check(chosen or sorted({*contents.sources(), *(p.with_suffix(".md") for p in there)}))


if __name__ == "__main__":
    sys.exit(main())
