"""Every fault that mailgres finds itself is in its table, with the class it really has."""

from __future__ import annotations

import re
from pathlib import Path

import mailgres
from mailgres.providers.own_faults import OWN_RULES

SOURCES = Path(mailgres.__file__).parent
RULES = {rule.code: rule.verdict for rule in OWN_RULES}


def test_every_fault_of_our_own_has_a_rule_with_its_class() -> None:
    found: dict[str, str] = {}
    for path in [*(SOURCES / "providers").rglob("*.py"), SOURCES / "sender" / "render.py"]:
        text = path.read_text()
        for code, rest in re.findall(r'Unsendable\(\s*"(\w+)"(.*?)\)(?: from|\n)', text, re.DOTALL):
            found[code] = "config" if rest.rstrip().endswith('"config"') else "permanent"
        results = re.findall(r'Result\(\s*"(\w+)",\s*code="(\w+)"', text)
        found |= {code: verdict for verdict, code in results}
    assert {"invalid_header", "no_sender", "template_failed"} <= set(found)
    assert {code: found[code] for code in found if code in RULES} == RULES
