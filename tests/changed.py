"""`make check`: quickly, what a change is most likely to have broken. `make test` says the rest.

    python tests/changed.py [--base main] [--list]

What has changed is what git tells apart from where this branch left `--base` (on that branch itself: from its last
commit), with what is not committed yet. Checked are lint, format, the house, types, the pairs of notebooks, the changed
pages, which are built into the book that was last built here, as strictly as all of it, and the tests in the room of a
changed file, or that name the file.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import stages

ROOT = stages.ROOT
sys.path.insert(0, str(ROOT / "book" / "tools"))

import build  # noqa: E402


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\0") if done.returncode == 0 else []


def changed(base: str) -> set[Path]:
    """The files that differ from where this branch left ``base``."""
    fork = "".join(git("merge-base", "HEAD", base)).strip() or "HEAD"
    names = git("diff", "--name-only", "-z", fork) + git("ls-files", "-z", "--others", "--exclude-standard")
    return {ROOT / name for name in names if name}


def reaches(test: Path, files: set[Path]) -> bool:
    """Whether a file of tests has to do with one of these: itself, the room's, or named there."""
    rooms = {f.parent.name for f in files if f.suffix == ".py"}
    if test in files or test.parent.name in rooms - {"tests", "labkit", "labkit_book"}:
        return True
    words = {word for f in files for word in (f.name, f.stem) if len(word) > 3 and f.stem != "__init__"}
    source = test.read_text(encoding="utf-8")
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", source) for word in words)


def pages(files: set[Path]) -> list[str]:
    """The pages of the book among these, as its table of contents names them."""
    names = re.findall(r"(?:root|file): (\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [page for page in names if files & {ROOT / f"{page}.md", ROOT / f"{page}.ipynb"}]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="main", help="what the change is held against")
    parser.add_argument("--list", action="store_true", help="say which pages and tests, and run nothing")
    args = parser.parse_args(argv)
    files = changed(args.base)
    tests, anew = [name for name in stages.files() if reaches(ROOT / name, files)], pages(files)
    print(f"{len(files)} files have changed since {args.base}:", *anew, *tests, sep="\n  ")
    if args.list:
        return 0
    status = stages.main(["lint", "format", "house", "types", "pairs"])
    if anew and not status and (ROOT / "_build" / "html" / "index.html").exists():
        status = build.build(ROOT, anew)
    if tests and not status:
        run = [*stages.PYTEST, *stages.WITHOUT, *stages.SEVERAL, *tests, "-m", stages.UNMARKED]
        status = subprocess.run(run, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
        status = 0 if status == 5 else status  # 5: all of them are for another stage
    print(f"make check: {'FAILED' if status else 'ok'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
