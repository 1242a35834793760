"""The `overspill` command: what people type. It stands on everything and nothing stands on it."""
