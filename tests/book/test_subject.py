"""What a page shows unfolded is its subject, not its plumbing."""

from __future__ import annotations

import contents
import pytest
import subject

ROOT = contents.ROOT
PAGE = """# 9.9 A lab

```{code-cell} ipython3
import numpy as np
from labkit import launch

# a comment

x = np.ones(3)
for i in range(3):
    x += i
    print(i)
for i in range(3):
    print(i)
    plt.plot(x)
assert x.sum() > 3
```

```{code-cell} ipython3
:tags: [hide-input]

folded = 1
```

```{code-cell} ipython3
---
tags: [hide-input]
---
folded = 2
```
"""


@pytest.mark.parametrize("lab", contents.labs())
def test_at_least_half_of_a_lab_s_unfolded_code_is_its_subject(lab):
    found = subject.count(lab, (ROOT / "notebooks" / f"{lab}.md").read_text(encoding="utf-8"))
    assert found.share >= subject.LEAST, f"{found.share:.0%}; see python book/tools/subject.py {lab}"


def test_a_line_is_plumbing_by_what_it_is_for():
    found = subject.count("9_9_a", PAGE)
    assert found.subject == 3  # x = , for ... in, x +=
    said = [line.strip() for line in found.plumbing]
    assert said == [
        "import numpy as np", "from labkit import launch", "print(i)", "for i in range(3):", "print(i)",
        "plt.plot(x)", "assert x.sum() > 3",
    ]  # fmt: skip
