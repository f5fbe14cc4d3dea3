"""Arguments of a wrong type: each is refused in one line that names what it got."""

import json
import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "store-v2"
CALLS = {
    "collapse.permutation([row, 3.5])": "float",
    "collapse.permutation(3)": "int",
    "collapse.Results(collapse.Results([row]).frame())": "str",
    "collapse.measure(statistics, metrics=3)": "int",
    "collapse.measure(statistics, metrics=[None])": "NoneType",
    "collapse.tokens(3)": "int",
    "collapse.tokens(statistics, ids=['20'])": "'20'",
    "collapse.tokens(statistics, [7])": "int",
    "collapse.tokens(statistics, least=2.5)": "2.5",
    "collapse.tokens(statistics, top=True)": "True",
    "collapse.tokens(statistics, top=1, by=3)": "3",
    "collapse.confusable_pairs(statistics, '5')": "'5'",
    "collapse.neighbours(statistics, None, ids=[0], most=None)": "None",
    "collapse.frequency_matched(statistics, ids=[0], draws=1.5)": "1.5",
    "collapse.vectors(statistics, None)": "NoneType",
    "collapse.vectors(statistics, ['counts'])": "list",
    "collapse.tokens(statistics, ids=11)": "11",
    "collapse.tokens(statistics, tokens=5)": "5",
    "collapse.tokens(statistics, min_count='1')": "'1'",
    "collapse.frequency_matched(statistics, ids=[0], seed='x')": "'x'",
    "collapse.frequency_matched(statistics, ids=[0], seed=-1)": "-1",
    "collapse.compare(5, 'stores/a')": "int",
    "collapse.compare(None, 'stores/a')": "NoneType",
    "collapse.compare([], 'stores/a')": "list",
    "collapse.compare(golden, golden, parts=5)": "5",
    "collapse.compare(golden, golden, parts=[5, [golden]])": "5",
    "collapse.compare(golden, golden, seeds=5)": "int",
    "collapse.compare(golden, golden, anyway='no')": "'no'",
    "collapse.report(row, 5)": "int",
    "collapse.save_figures(row, 'f', formats=5)": "5",
    "collapse.save_figures(row, 'f', formats=['svg', 5])": "5",
    "collapse.merge(None, store='m')": "NoneType",
    "collapse.merge([1, 2], store='m')": "int",
    "collapse.merge(['a', 'b'], store=None)": "NoneType",
    "collapse.collect_loaded(loaded, loaded, None)": "NoneType",
    "collapse.collect_loaded(loaded, loaded, ['a'], 3)": "int",
}
SCRIPT = """
import json, sys
import collapse
from collapse.errors import UsageError
from collapse.testing import tiny_statistics

class Loaded:
    def save_pretrained(self, folder):
        raise AssertionError("arguments are checked first")

loaded, statistics = Loaded(), tiny_statistics()
row = collapse.measure(statistics, metrics="nc2.norm")
golden = sys.argv[1]
refused = {}
for call in json.load(sys.stdin):
    try:
        eval(call)
    except UsageError as error:
        refused[call] = str(error)
    except Exception as error:
        refused[call] = f"{type(error).__name__}\\n"
print(json.dumps(refused))
"""


def test_an_argument_of_a_wrong_type_is_refused_in_a_line():
    # in a process of its own: here, arguments are checked by the tests' own type checker first
    words = [sys.executable, "-c", SCRIPT, str(GOLDEN)]
    done = subprocess.run(words, input=json.dumps(list(CALLS)), capture_output=True, text=True, check=True)
    refused = json.loads(done.stdout)
    for call, named in CALLS.items():
        assert named in refused[call], call
        assert "\n" not in refused[call], call
