"""Read models: one module per noun. Explanations come from the functions that make the decisions."""
