"""The demo's story on a real terminal."""

import asyncio

from tests.support.terminals import shown

PROGRAM = """
from overspill_demo.progress import Progress
with Progress(lambda: 0.0) as progress:
    progress.note("the first return: inference/chat-7d9f8b6c5d-abcde is evicted, so that its successor lands at home")
    progress.note("Kubernetes: /tmp/x", "kubectl --kubeconfig /tmp/a-folder/with/a/long/name/kubeconfig get pods -A --watch")
"""


async def test_prose_is_broken_between_words_and_what_is_copied_is_not() -> None:
    """Of 80 columns the terminal breaks the last line itself, and joins it again when it is copied."""
    code, lines = await asyncio.to_thread(shown, ("-c", PROGRAM), columns=80)
    assert code == 0
    told = [line.rstrip() for line in lines if line.strip()]
    assert told == [
        "   0.0 s  the first return: inference/chat-7d9f8b6c5d-abcde is evicted, so that",
        "          its successor lands at home",
        "   0.0 s  Kubernetes: /tmp/x",
        "          kubectl --kubeconfig /tmp/a-folder/with/a/long/name/kubeconfig get pods -A --watch",
    ]
