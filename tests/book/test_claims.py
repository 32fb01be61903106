"""The audit says what the labs say: no claim without a verdict, no verdict without a cell that ran."""

import claims as tool
import nbformat
import pytest

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


def test_a_claim_is_read_with_its_verdict_its_condition_and_its_cell():
    (claim,) = tool.claims(LAB)
    assert claim.key == "9-9-pigs" and claim.text == "“Pigs fly, and so do cows.”"
    assert (claim.form, claim.condition) == ("true if", "they jump")
    assert claim.finding == "They get up to 0.5 of three metres." and "assert height_m" in claim.cells[0]
    assert claim.evidence == "proof; 5 seeds, by barn"
    said = tool.page([("9_9_lab", "9.9 A lab", [claim])])
    text = said["% all claims\n"]
    assert "**True if** they jump. They get" in text and "<claim-9-9-pigs>" in text
    assert "metres. *Evidence:* proof; 5 seeds, by barn. (" in text
    assert said["{{ counted }}"] == "1 true under a condition"


@pytest.mark.parametrize(("old", "new", "complaint"), [
    (":name: claim-9-9-pigs\n", "", "must have a line ':name: claim-...'"),
    (":name: verdict-9-9-pigs\n", ":name: verdict-9-9-cows\n", "must be followed by a box of class verdict"),
    ("assert height_m < 2", "# assert height_m < 2", "must be followed by a cell with an assert"),
    ("Verdict: true if they jump", "Verdict: partly", "must be titled"),
    ("0.5 of\nthree", "2 of\nthree", "no number that no cell computes, but holds 2"),
    ("They get up to 0.5 of\nthree metres.\n", "", "must hold two paragraphs"),
    ("proof; 5 seeds", "proof; some seeds", "the evidence of verdict-9-9-pigs must be proof"),
    ('"Pigs fly, and\nso do cows."', "Pigs fly.", "in quotation marks"),
])  # fmt: skip
def test_a_box_that_lacks_something_is_refused_by_name(old, new, complaint):
    assert old in LAB
    with pytest.raises(ValueError, match=complaint.replace("...", r"\.\.\.")):
        tool.claims(LAB.replace(old, new))


def test_what_a_cell_prints_counts_as_computed_unless_it_differs_from_run_to_run(tmp_path):
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", text="7.5 m\n")])
    path = tmp_path / "lab.ipynb"
    assert tool.outputs(path) == ""
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert tool.claims(LAB.replace("0.5 of\nthree", "7.5 of\nthree"), tool.outputs(path))
    cell["metadata"] = {"tags": ["nbval-ignore-output"]}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert "7.5" not in tool.outputs(path)
