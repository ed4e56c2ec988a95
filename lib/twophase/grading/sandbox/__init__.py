"""A submission's process: what starts it, what confines it, what runs in it, what ends it."""
