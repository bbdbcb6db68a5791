"""What tests share and conftest.py hands out as fixtures."""
