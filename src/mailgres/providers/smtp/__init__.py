"""SMTP servers."""
