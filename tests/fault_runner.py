"""Pulls or pushes a store again and again, each time with a new cache: reads a job a line, prints how it ended.

In a process of its own, because the client reads its endpoint when it is imported. ``--without-check`` takes the hash
check out, to see that the tests would notice.
"""

import json
import sys

from huggingface_hub import constants

import collapse.hub.remote
import collapse.hub.requests
import collapse.hub.sharing
import collapse.stores.files
import collapse.stores.store
from collapse.errors import CollapseError

if "--without-check" in sys.argv:
    for module in (collapse.stores.files, collapse.hub.remote, collapse.stores.store):
        module.check_file = lambda *_, **__: None
collapse.hub.requests._FIRST_WAIT = 0.01

for line in sys.stdin:
    job = json.loads(line)
    constants.HF_HUB_CACHE = job["cache"]
    try:
        if "pull" in job:
            collapse.hub.sharing.pull(job["pull"], job["store"])
        else:
            collapse.hub.sharing.push(collapse.load(job["store"]), job["push"])
        outcome = {"ended": "right"}
    except CollapseError as error:
        outcome = {"ended": "told", "said": str(error)}
    except Exception as error:
        outcome = {"ended": "crashed", "said": f"{type(error).__name__}: {error}"}
    print(json.dumps(outcome), flush=True)  # noqa: T201  # what the test reads
