"""The grammars of Kubernetes names (`k8s.io/apimachinery/pkg/util/validation`), and the suffix of generated ones."""

import random
import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253

LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
FINALIZER_WORDS = "name is neither a standard finalizer name nor is it fully qualified"
LABEL_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
PERCENT_WORDS = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
QUALIFIED_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
# Without vowels and look-alikes, as `k8s.io/apimachinery/pkg/util/rand` has it.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5


def is_label(text: str) -> bool:
    """Tell whether text is a DNS-1123 label."""
    return len(text) <= _LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Tell whether text is a DNS-1123 subdomain."""
    return len(text) <= _SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def is_qualified(text: str) -> bool:
    """Tell whether text is a qualified name: an optional DNS prefix and a name of at most 63 characters."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return len(name) <= _LABEL_LENGTH and _QUALIFIED.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Tell whether text may be the value of a label."""
    return not text or (len(text) <= _LABEL_LENGTH and _QUALIFIED.fullmatch(text) is not None)


def generated(prefix: str) -> str:
    """Return a name for `generateName`: the prefix, cut so that the whole fits a label, and five random letters."""
    suffix = "".join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))  # noqa: S311  a name, not a secret
    return prefix[: _LABEL_LENGTH - _SUFFIX_LENGTH] + suffix
