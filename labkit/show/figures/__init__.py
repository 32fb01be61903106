"""What interactive figures are made of, which need no kernel.

In a notebook a figure is a live widget (anywidget); on a page of the book the same code runs without a kernel; and where
neither is there, a still picture with its description stands in its place.
"""
