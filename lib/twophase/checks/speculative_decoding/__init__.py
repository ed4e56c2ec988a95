"""Checks of chapter 14, speculative decoding."""

ORDER = (
    "accept",
    "verify",
    "snippet",
    "verifier_tests",
    "loop",
    "rollback",
    "expected",
    "lookup",
    "verify_price",
    "draft_length",
    "tree_mask",
    "slower",
    "choose",
)
