"""`make check`: in a minute and a half, what a change is most likely to have broken. `make test` says the rest.

    python tests/changed.py [--base main] [--seconds 75] [--list]

What has changed is what git tells apart from where this branch left `--base` (on that branch itself: from its last
commit), with what is not committed yet. Checked are lint, format, the house, types, the pairs of notebooks, the changed
pages, which are built into the book that was last built here, as strictly as all of it, and the tests that reach a changed
file: by their imports, followed through labkit, or because they name it or its folder. Those in the room of a change come
first, and quick ones first, by how long they took here last, for as long as there is time. What still runs then is
interrupted; what is left out is said.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Collection
from functools import cache
from pathlib import Path

import stages

ROOT = stages.ROOT
sys.path.insert(0, str(ROOT / "book" / "tools"))

import build  # noqa: E402
import closure  # noqa: E402

UNKNOWN_S = 8.0  # for a file of tests that has not been timed here
BY_COMMAND = re.compile(r'"-m",\s*"labkit|-m labkit')  # reaches our packages without an import


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\0") if done.returncode == 0 else []


def changed(base: str) -> set[Path]:
    """The files that differ from where this branch left ``base``."""
    fork = "".join(git("merge-base", "HEAD", base)).strip() or "HEAD"
    names = git("diff", "--name-only", "-z", fork) + git("ls-files", "-z", "--others", "--exclude-standard")
    return {ROOT / name for name in names if name}


@cache
def behind(test: Path) -> frozenset[Path]:
    """The files that a file of tests imports, however many steps away."""
    return frozenset(closure.reached(closure.imports(test.read_text(encoding="utf-8")), ROOT))


def reaches(test: Path, files: set[Path]) -> bool:
    """Whether a file of tests has to do with one of these."""
    source = test.read_text(encoding="utf-8")
    if test in files:
        return True
    modules = {module.partition(".")[0] for module, _ in closure.imports(source)}
    python = {f for f in files if f.suffix == ".py"}
    if BY_COMMAND.search(source) and any(
        ROOT / name in f.parents for name in closure.PACKAGES for f in files
    ):
        return True
    if python & behind(test) or {f.stem for f in python} & modules:
        return True
    if any(test.parent in f.parents and not f.name.startswith("test_") for f in python):
        return True  # a helper beside it
    words = {word for f in files - python for word in (f.name, f.stem, f.parent.name) if len(word) > 3}
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", source) for word in words)


def chosen(
    tests: list[Path], seconds: float, took: dict[str, float], files: Collection[Path] = ()
) -> tuple[list[Path], list[Path]]:
    """(to run, to leave out): those in a room that has changed, then the quick ones, two at a time, while there is time."""
    left, inside, outside = 2 * seconds, list[Path](), list[Path]()
    rooms = {f.parent.name for f in files}
    for test in sorted(
        tests, key=lambda t: (t not in files, t.parent.name not in rooms, took.get(name(t), UNKNOWN_S))
    ):
        left -= took.get(name(test), UNKNOWN_S)
        (inside if left >= 0 else outside).append(test)
    return inside, outside


def pages(files: set[Path]) -> list[str]:
    """The pages of the book among these, as its table of contents names them."""
    names = re.findall(r"(?:root|file): (\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [page for page in names if files & {ROOT / f"{page}.md", ROOT / f"{page}.ipynb"}]


def name(test: Path) -> str:
    return test.relative_to(ROOT).as_posix()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="main", help="what the change is held against")
    parser.add_argument("--seconds", type=float, default=75.0, help="when the last test may begin")
    parser.add_argument("--list", action="store_true", help="say which tests, and run nothing")
    args = parser.parse_args(argv)
    began, files = time.perf_counter(), changed(args.base)
    took = json.loads(stages.TOOK.read_text()) if stages.TOOK.exists() else {}
    tests = [t for t in sorted((ROOT / "tests").rglob("test_*.py")) if reaches(t, files)]
    anew = pages(files)
    print(
        f"{len(files)} files have changed since {args.base}, of them {len(anew)} pages of the book; "
        f"{len(tests)} files of tests reach them"
    )
    if args.list:
        print("\n".join([*anew, *map(name, tests)]))
        return 0
    status = stages.main(["lint", "format", "house", "types", "pairs"])
    built = (ROOT / "_build" / "html" / "index.html").exists()
    if anew and built and not status:
        print(f"\n--- {len(anew)} pages of the book", flush=True)
        status = build.build(ROOT, anew)
    seconds = args.seconds - (time.perf_counter() - began)
    run, left = chosen(tests, seconds, took, files)
    if run and not status:
        command = [
            *stages.PYTEST,
            *stages.WITHOUT,
            *stages.TWO,
            "loadfile",
            *map(name, run),
            "-m",
            stages.UNMARKED,
        ]
        report = stages.TOOK.with_name("check.xml")
        report.unlink(missing_ok=True)
        clock = time.perf_counter()
        status = stages.run("tests", command, report, until_s=seconds)
        if time.perf_counter() - clock < seconds:
            stages.remember(report)
        else:
            print("interrupted, for its time is over: what has not run above is left to `make test`")
        status = 0 if status == 5 else status  # 5: all of them are for another stage
    if anew and not built:
        print(f"not built, for there is no book to build them into (`make book`): {', '.join(anew)}")
    if left:
        about = sum(took.get(name(t), UNKNOWN_S) for t in left) / 2
        print(f"left to `make test`, about {about:.0f} s: {', '.join(map(name, left))}")
    print(f"make check: {'FAILED' if status else 'ok'} after {time.perf_counter() - began:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
