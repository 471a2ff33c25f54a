"""Enqueues a job every few milliseconds with the code that it finds, and writes down what was acknowledged.

Started as a script of its own, with a tree of whatever age on its path. Each line: the job's id, its number, and how
many seconds the enqueue took; after an error, ``!`` and what it was.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path

GAP = 0.02


def main() -> None:
    import django

    django.setup()
    import pulse_django
    from testproject.shop.tasks import make_invoice_carelessly

    say("#", Path(pulse_django.__file__).parent.parent)
    for number in count(1):
        began = time.monotonic()
        try:
            job = make_invoice_carelessly.enqueue(number)
        except Exception as error:
            say("!", repr(error))
        else:
            say(job.id, number, f"{time.monotonic() - began:.4f}")
        time.sleep(GAP)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
