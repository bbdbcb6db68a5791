"""Templates: rendered for the worker, pushed and pulled for people.

A worker keeps a `TemplateCache` and calls `render`, which raises `mailgres.errors.TemplateFailed`
for an email that can never be rendered:

    cache = TemplateCache(lambda name, version: load_contents(connection, name, version))
    subject, html, text = cache.render("welcome_user", 3, payload)
"""

from mailgres.templates.cache import TemplateCache
from mailgres.templates.content import Content, Contents, Rendered
from mailgres.templates.draft import Draft
from mailgres.templates.files import read_templates
from mailgres.templates.rendering import Template, render
from mailgres.templates.stored import load_contents
from mailgres.templates.writing import write_templates

__all__ = [
    "Content",
    "Contents",
    "Draft",
    "Rendered",
    "Template",
    "TemplateCache",
    "load_contents",
    "read_templates",
    "render",
    "write_templates",
]
