"""What an instructor runs (``python -m labkit.grade``): a class's notebooks, each answer in an isolated process."""
