"""The audit says what the labs say: no claim without a verdict, no verdict without a cell that ran."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import nbformat
import portable
import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("claims_tool", ROOT / "book" / "tools" / "claims.py")
tool = importlib.util.module_from_spec(spec)
sys.modules["claims_tool"] = tool  # for dataclass
spec.loader.exec_module(tool)

LAB = """\
# 9.9 A lab

:::{admonition} Check the claim
:class: check-claim
:name: claim-9-9-pigs
"Pigs fly, and
so do cows."
:::

```{code-cell} ipython3
height_m = 3 * 0.5
assert height_m < 2
```

:::{admonition} Verdict: true if they jump
:class: verdict
:name: verdict-9-9-pigs
They get up to 0.5 of
three metres.

*Evidence:* proof; 5 seeds,
by barn.
:::
"""


def test_the_committed_page_is_what_the_labs_say():
    written = (ROOT / "book" / "claims.md").read_text()
    assert written == tool.page(tool.audited()), "run: python book/tools/claims.py"


def test_every_check_the_claim_box_of_every_lab_is_on_the_page():
    found = tool.audited()
    for name, _, claims in found:
        boxes = (ROOT / "notebooks" / f"{name}.md").read_text().count("{admonition} Check the claim")
        assert boxes == len(claims), name
    keys = [c.key for _, _, claims in found for c in claims]
    assert len(keys) == len(set(keys)) > 40


def test_what_the_field_says_about_stragglers_scaling_and_bits_is_among_them():
    said = {c.key: c for _, _, claims in tool.audited() for c in claims}
    for key, form, words in [
        ("10-3-straggler-tax", "true if", "straggler tax grows"),
        ("10-5-grows", "true if", "time grows with the number of workers"),
        ("10-4-scales-poorly", "false", "scales poorly"),
        ("10-3-clock", "false", "from 22 to 41 minutes"),
        ("10-3-bitwise", "true if", "bitwise the result of a single machine"),
    ]:
        assert said[key].form == form and words in said[key].text


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "notebooks").glob("*.md"))])
def test_the_cell_that_decides_has_been_run_and_did_not_fail(name):
    source = (ROOT / "notebooks" / f"{name}.md").read_text()
    cells = portable.read(ROOT / "notebooks" / f"{name}.ipynb").cells
    ran = {c["source"].strip(): c for c in cells if c["cell_type"] == "code"}
    for claim in tool.claims(source, tool.outputs(ROOT / "notebooks" / f"{name}.ipynb")):
        for code in claim.cells:
            cell = ran.get(code.strip())
            if cell is None:
                pytest.skip(f"{name}.ipynb is not in step with its source, as the pairs' own check will say")
            assert cell["execution_count"], claim.key
            assert not [o for o in cell["outputs"] if o["output_type"] == "error"], claim.key


def test_a_claim_is_read_with_its_verdict_its_condition_and_its_cell():
    (claim,) = tool.claims(LAB)
    assert claim.key == "9-9-pigs" and claim.text == "“Pigs fly, and so do cows.”"
    assert (claim.form, claim.condition) == ("true if", "they jump")
    assert claim.finding == "They get up to 0.5 of three metres." and "assert height_m" in claim.cells[0]
    assert claim.evidence == "proof; 5 seeds, by barn"
    text = tool.page([("9_9_lab", "9.9 A lab", [claim])])
    assert (
        "**True if** they jump. They get" in text
        and "metres. *Evidence:* proof; 5 seeds, by barn. (" in text
        and "<claim-9-9-pigs>" in text
        and "1 true under a condition." in text
    )


def test_a_claim_may_stand_in_the_title_and_be_plainly_true_or_false():
    text = LAB.replace("Check the claim\n", "Check the claim: “pigs fly”\n")
    for form in ("true", "false", "not decided here"):
        (claim,) = tool.claims(text.replace("true if they jump", form))
        assert (claim.text, claim.form, claim.condition) == ("“Pigs fly”", form, "")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (":name: claim-9-9-pigs\n", "", "must have a line ':name: claim-...'"),
        (":name: verdict-9-9-pigs\n", ":name: verdict-9-9-cows\n", "must be followed by a box of class verdict"),
        (":class: verdict\n", "", "must be followed by a box of class verdict"),
        ("assert height_m < 2", "print(height_m)", "must be followed by a cell with an assert"),
        ("assert height_m < 2", "# assert height_m < 2", "must be followed by a cell with an assert"),
        ("Verdict: true if they jump", "Verdict: partly", "must be titled"),
        ("Verdict: true if they jump", "Verdict: true if ", "must be titled"),
        ("0.5 of\nthree", "0.7 of\nthree", "no number that no cell computes, but holds 0.7"),
        ("0.5 of\nthree", "2 of\nthree", "no number that no cell computes, but holds 2"),
        ("They get up to 0.5 of\nthree metres.\n", "", "must hold two paragraphs"),
        ("up to 0.5 of\n", "up to 0.5 of\n\n", "must hold two paragraphs"),
        ("*Evidence:* proof; 5 seeds,\nby barn.\n", "", "must hold two paragraphs"),
        ("proof; 5 seeds", "proof; some seeds", "the evidence of verdict-9-9-pigs must be proof"),
        ('"Pigs fly, and\nso do cows."', "Pigs fly.", "in quotation marks"),
    ],
)  # fmt: skip
def test_a_box_that_lacks_something_is_refused_by_name(old, new, complaint):
    assert old in LAB
    with pytest.raises(ValueError, match=complaint.replace("...", r"\.\.\.")):
        tool.claims(LAB.replace(old, new))


def test_a_verdict_before_its_cell_or_without_a_claim_is_refused():
    box, cell, verdict = (
        LAB[LAB.index(":::") : LAB.index("```")],
        "```{code-cell}\nx = 0.5\nassert x\n```\n\n",
        LAB[LAB.rindex(":::{") :],
    )
    assert tool.claims(box + cell + verdict)
    with pytest.raises(ValueError, match="a cell with an assert before its verdict"):
        tool.claims(box + verdict + cell)
    with pytest.raises(ValueError, match="must belong to a claim"):
        tool.claims(cell + verdict)


def test_what_a_cell_prints_counts_as_computed_unless_it_differs_from_run_to_run(tmp_path):
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", text="7.5 m\n")])
    path = tmp_path / "lab.ipynb"
    assert tool.outputs(path) == ""
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert tool.claims(LAB.replace("0.5 of\nthree", "7.5 of\nthree"), tool.outputs(path))
    cell["metadata"] = {"tags": ["nbval-ignore-output"]}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert "7.5" not in tool.outputs(path)
