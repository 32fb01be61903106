"""A notebook shows no raw MyST wherever it is opened: boxes, hints, references and citations are plain Markdown."""

import re
from pathlib import Path

import contents
import nbformat
import portable
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb")) + sorted(
    (ROOT / "notebooks" / "exercises").glob("*.ipynb")
)
RAW = re.compile(r":::|\{[\w:-]+\}`|^:\w+:|^\([\w-]+\)=|^% |\{\{", re.M)
LAB = ROOT / "notebooks" / "10_3_synchronous_sgd.md"
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_no_directive_or_role_reaches_a_reader_and_every_link_leads_to_a_file(path: Path) -> None:
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
    text = "\n\n".join(re.sub(r"^```[\s\S]*?^```", "", c.source, flags=re.M) for c in cells)
    assert not RAW.search(text)
    assert text.count("<div") == text.count("</div>") and text.count("<details>") == text.count("</details>")
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert [to for to in links if not (path.parent / to).exists()] == []


def test_every_lab_leads_to_the_next_to_its_problems_and_to_all_labs_and_the_page_leaves_that_to_its_buttons() -> (
    None
):
    order = contents.notebooks()
    for name, after in zip(order, [*order[1:], ""], strict=True):
        path = ROOT / "notebooks" / f"{name}.ipynb"
        nb = nbformat.read(path, as_version=4)
        leads = re.findall(r"\]\(([^)]+)\)", nb.cells[-1].source)
        number = contents.number(name).replace(".", "_").lower()
        sets = [f"exercises/{number}_exercises.ipynb"] if number else []
        assert leads == [f"{after}.ipynb"] * bool(after) + sets + [f"{contents.FRONT}.ipynb"]
        assert all((path.parent / to).exists() for to in leads)
        portable.dress_inplace(nb, path.with_suffix(".md"))
        assert contents.FRONT not in nb.cells[-1].source


@pytest.mark.parametrize(("written", "shown"), [
    ("(here)=\nsee {doc}`10_5_network`", "see [10.5 On a network](10_5_network.ipynb)"),
    ("{doc}`set 10.7 <exercises/10_7_exercises>`", "[set 10.7](exercises/10_7_exercises.ipynb)"),
    ("{ref}`least <why-10-5-bytes>` {term}`rounds <round>`", "[least](10_5_all_reduce.ipynb) rounds"),
    ("{ref}`above <why-10-3-one-step>`", "above"),
    ("{cite}`dean2004`", "(Dean and Ghemawat, 2004)"),
    (
        ":::{admonition} Hint 1\n:class: dropdown\nIs $x < y$?\n\n- no\n:::",
        "<details>\n<summary><b>Hint 1</b></summary>\n\nIs $x < y$?\n\n- no\n\n</details>",
    ),
    (
        ":::{admonition} Why\n:class: why\n:name: why-10-3-x\n\n*Statement.* {term}`all-reduce`\n:::\n\nMore.",
        '<div class="alert alert-block alert-success">\n\n**Why**\n\n*Statement.* all-reduce\n\n</div>\n\nMore.',
    ),
])  # fmt: skip
def test_boxes_hints_and_references_become_plain_markdown(written: str, shown: str) -> None:
    assert portable.portable(written, LAB) == shown


def test_the_book_gets_the_written_text_back_and_refuses_a_notebook_of_another(tmp_path: Path) -> None:
    for lab in contents.labs():
        path = ROOT / "notebooks" / f"{lab}.ipynb"
        nb = nbformat.read(path, as_version=4)
        portable.dress_inplace(nb, path.with_suffix(".md"))
        assert any(":::{admonition}" in c.source for c in nb.cells)
    nb.cells[0].source += " More."
    with pytest.raises(ValueError, match="out of step"):
        portable.dress_inplace(nb, path.with_suffix(".md"))
