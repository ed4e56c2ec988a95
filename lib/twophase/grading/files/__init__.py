"""Files of somebody else's making read, folders removed, files written whole or not at all."""
