"""Delivery of webhook messages over HTTP."""
