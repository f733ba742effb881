"""Numbered schema scripts, applied in order. A fresh database applies all of them."""
