"""The text part that is made from an HTML part."""

from __future__ import annotations

import pytest

from mailgres.templates import Content, render
from mailgres.templates.plain_text import text_from_html


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One\n  line</p><p>Two<br>three<br/>four</p>", "One line\n\nTwo\nthree\nfour"),
        ("<h1>Title</h1>text", "Title\n\ntext"),
        ("<div>a</div><div>b</div>", "a\n\nb"),
        ("<ul><li>a</li><li>b</li></ul>", "- a\n\n- b"),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "a b"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ('<a href="https://x.example/?a=1&amp;b=2">go</a>!', "go (https://x.example/?a=1&b=2)!"),
        ('<a href="https://x.example">https://x.example</a>', "https://x.example"),
        ('<a href="mailto:a@x.example">a@x.example</a>', "a@x.example"),
        ('<a href="mailto:a@x.example">write</a>', "write (a@x.example)"),
        ('<a href="#top">up</a><a name="x">here</a>', "uphere"),
        ('<a href="{{ url }}">go</a>', "go ({{ url }})"),
        ('<a href="{{ url }}">{{ url }}</a>', "{{ url }}"),
        ('<a href="https://x.example/{{ id }}">go</a>', "go (https://x.example/{{ id }})"),
        ('<img src="x" alt="Acme"> &copy; &lt;Acme&gt;', "Acme © <Acme>"),
        ("<head><title>t</title><style>p { x: y }</style></head><p>a</p>", "a"),
        ('<div style="DISPLAY: none">hidden <p>too</p></div><p>a</p>', "a"),
        ("<script>if (a < b) {}</script>a<!-- no --><p>unclosed", "a\n\nunclosed"),
        ('{% if a < b and c == "<p>" %}x{% endif %}', '{% if a < b and c == "<p>" %}x{% endif %}'),
        ('{{ x | default("}} <b>") }}', '{{ x | default("}} <b>") }}'),
        ("{# <p> #}a{% raw %}{{ <b> }}{% endraw %}", "{# <p> #}a{% raw %}{{ <b> }}{% endraw %}"),
        ("\ue0000\ue001", "0"),
        ("", ""),
    ],
)
def test_html_becomes_plain_text(html: str, text: str) -> None:
    assert text_from_html(html) == text


def test_entities_do_not_become_template_syntax() -> None:
    text = text_from_html("<p>&#123;&#123; x &#125;&#125; and &#123;% y</p>")
    assert render({"en": Content("Hi", text)}, {}).text == "{{ x }} and {% y\n"
