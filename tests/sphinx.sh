#!/usr/bin/env bash
# Does the book build, strictly, by the newest Sphinx and myst-nb, which Jupyter Book 1 does not take? Of what is committed, from
# the same _config.yml and _toc.yml, in an environment of its own: _build/sphinx. Once a week.
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory .venv/.ready
home=$PWD/_build/sphinx
rm -rf "$home"
git clone -q . "$home/source"
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q sphinx myst-nb sphinx-{book-theme,comments,copybutton,design,external-toc,togglebutton} \
  sphinx-{jupyterbook-latex,multitoc-numbering,reredirects,mathjax-offline} sphinxcontrib-bibtex jupytext math-core "$home/source[labs]"
.venv/bin/jupyter-book config sphinx "$home/source" >/dev/null
cd "$home/source"
# The one line that Jupyter Book leaves out, and the one extension that is its own.
sed -i "1i import sys; sys.path.insert(0, 'book/tools')" conf.py
sed -i "s/'jupyter_book', //" conf.py
"$home/venv/bin/python" -m sphinx -b html -W -n --keep-going -q . "$home/html"
"$home/venv/bin/pip" list 2>/dev/null | grep -iE '^(sphinx|myst-nb|sphinx-book-theme) '
echo "The book builds by these: $home/html/index.html"
