"""The values that settings and command arguments take: how each is read, checked and shown."""
