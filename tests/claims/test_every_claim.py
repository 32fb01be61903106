"""No claim of the book goes unchecked, and no check outlives its claim."""

import ast
import re
from pathlib import Path

OWN_AND_FOUR_OTHERS = 5


def test_every_claim_has_an_oracle_of_its_own(claims):
    tests = {
        name.replace("_", "-")
        for path in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(r"^def test_((?:\d|[a-z]_)\w+)\(", path.read_text(encoding="utf-8"), re.M)
    }
    assert tests == set(claims)


def test_every_claim_that_rests_on_seeds_is_tried_in_four_other_settings(claims):
    settings = {}
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", []):
                if ast.unparse(mark).startswith("pytest.mark.settings("):
                    settings[node.name.removeprefix("test_").replace("_", "-")] = len(mark.args)
    random = {key for key, claim in claims.items() if re.search(r"\d seeds", claim.evidence)}
    assert not {key for key in random if settings.get(key, 0) < OWN_AND_FOUR_OTHERS}
