"""Gradescope: the zip to upload, and what runs from it in their container."""
