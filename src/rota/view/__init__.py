"""What looks at things: one file per noun. Explanations come from the functions that decide."""
