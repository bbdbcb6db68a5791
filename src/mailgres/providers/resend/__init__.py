"""Resend. Imports nothing: its library is loaded when it is used."""
