"""Looking at the world outside for gates: branches, documents in their tips, files."""
