"""The commands: the module of each has its name."""
