"""Print every few seconds how much slower this machine is than that of the budgets: see steps.sh."""

import ast
import inspect
import os
import time

REFERENCE = 0.030  # processor seconds that the work takes there

source, parent = inspect.getsource(inspect), os.getppid()
while os.getppid() == parent:
    before = time.process_time()
    ast.parse(source)
    taken = time.process_time() - before
    print(f"{time.time():.0f} {taken / REFERENCE:.2f}", flush=True)  # noqa: T201
    time.sleep(3)
