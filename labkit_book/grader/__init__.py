"""What an instructor runs (``python -m labkit_book.grader``): a class's notebooks, each answer in an isolated process."""
