"""The torch side: real models. Every module here imports torch; import what you need from it by name."""

from labkit import extras

extras.need("torch")
