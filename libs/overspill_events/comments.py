"""What the catalogue says about each field, read off its own comments, so that units and rules are written once.

This module must not know what its readers make of the text.
"""

import ast
import inspect
import io
import tokenize
from functools import cache
from types import ModuleType

from overspill_events import catalog, values


@cache
def field_comments() -> dict[tuple[str, str], str]:
    """(class name, field name) → the comment on the field's line."""
    return _comments(values) | _comments(catalog)


def _comments(module: ModuleType) -> dict[tuple[str, str], str]:
    source = inspect.getsource(module)
    by_line = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        (node.name, field.target.id): by_line[field.lineno]
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.lineno in by_line
    }
