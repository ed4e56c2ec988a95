"""Checks of chapter 14, speculative decoding."""

ORDER = (
    "accept",
    "verify",
    "snippet",
    "loop",
    "verifier_tests",
    "expected",
    "lookup",
    "verify_price",
    "draft_length",
    "tree_mask",
    "rollback",
    "slower",
    "choose",
)
