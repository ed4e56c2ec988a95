"""A sibling of a public exercise: it takes that one's place in the released notebook, and its check
stays with you."""

ORDER = ("fewest_chips",)
REPLACES = {"fewest_chips": "max_batch"}
