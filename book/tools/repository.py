"""Where this repository lives in public: the one address behind every launch button and every first cell.

`repository.url` in _config.yml says it. Where that is empty, the git remote `origin` does, if it is at a public
forge. Without either there is no address, hence no button, rather than a broken one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FORGES = ("github.com", "gitlab.com")
BRANCH = "main"
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?(?:www\.)?"  # a protocol and credentials, neither of them kept
    rf"(?P<forge>{'|'.join(map(re.escape, FORGES))})(?::\d+(?=/))?[:/]"
    r"(?P<path>[\w.-]+(?:/[\w.-]+)+)/?",
    re.IGNORECASE,
)


def public(remote: str) -> str:
    """`remote` (as git writes it) as https://FORGE/OWNER/NAME, without credentials; empty if it is at no public forge."""
    found = _REMOTE.fullmatch(remote.strip())
    return f"https://{found['forge'].lower()}/{found['path'].removesuffix('.git')}" if found else ""


def _repository(root: Path) -> dict[str, Any]:
    try:
        return dict(
            yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8")).get("repository") or {}
        )
    except FileNotFoundError:
        return {}


def setting(root: Path = ROOT) -> str:
    """The address that _config.yml names; empty if none. ValueError for one that no button could use."""
    url = str(_repository(root).get("url") or "")
    if url and not public(url):
        raise ValueError(
            f"repository.url in _config.yml must be empty or an address at {' or '.join(FORGES)}, as "
            f"https://github.com/owner/name, got {url!r}"
        )
    return public(url)


def origin(root: Path = ROOT) -> str:
    """The public address of the git remote `origin` of `root` itself; empty if there is none."""
    if not (root / ".git").exists():
        return ""
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "remote", "get-url", "origin"],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:  # no git here
        return ""
    return public(asked.stdout) if asked.returncode == 0 else ""


def address(root: Path = ROOT) -> str:
    """The repository's public address, https://FORGE/OWNER/NAME; empty if none is known."""
    return setting(root) or origin(root)


def branch(root: Path = ROOT) -> str:
    """The branch that launch buttons open."""
    return str(_repository(root).get("branch") or BRANCH)
