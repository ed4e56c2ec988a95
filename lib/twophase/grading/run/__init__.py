"""Many submissions: judges side by side, parts of a class, the same again."""
