# %% [markdown]
# # A package with a metric
#
# A metric that others can install is a package of three files. We begin in an empty folder.
#
# The metric compares the radii of two classes with the distance of their means. Its parameters name what it reads
# ([all names](../docs/guides/plugins.md#what-a-function-reads)).

# %%
with open("overlap.py", "w") as file:
    file.write('''\
from collapse import Max, Mean, pair_metric


@pair_metric(Mean("overlap.mean", towards=0), Max("overlap.max", towards=0))
def overlap(row_variances, column_variances, distance):
    """Radii of two classes over the distance of their means.

    Equation: (σ_c + σ_c′) / ‖μ_c − μ_c′‖
    """
    return (row_variances.sqrt() + column_variances.sqrt()) / distance
''')

# %% [markdown]
# The entry point tells `collapse` about the module. The last line makes pytest check the laws that every metric must
# obey.

# %%
with open("pyproject.toml", "w") as file:
    file.write("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "collapse-overlap"
version = "0.1"
dependencies = ["linguistic-collapse"]

[project.entry-points.collapse]
overlap = "overlap"

[tool.hatch.build.targets.wheel]
include = ["overlap.py"]

[tool.pytest.ini_options]
addopts = "-p collapse.testing.pytest_plugin --collapse-laws overlap"
""")

# %% [markdown]
# One test compares a value with a calculation by hand: two classes with variances 1 and 9, at a distance of 4.

# %%
with open("test_overlap.py", "w") as file:
    file.write("""\
from collapse.testing import two_classes, value

from overlap import overlap


def test_by_hand():
    assert value(overlap, two_classes(4, [1, 9]))[0, 1] == (1 + 3) / 4
""")

# %% [markdown]
# `pip install .` installs it. Here it goes into a folder, so that the notebook leaves your environment as it is.
# `pytest` runs the test and checks the laws; `collapse` finds the metric.

# %% language="bash" magic_args="-e"
# python -m pip install --quiet --no-deps --no-build-isolation --target packages .
# export PYTHONPATH=packages
# collapse metrics overlap
# python -m pytest -q

# %% [markdown]
# `collapse measure` now has it too:

# %%
import safetensors.torch

from collapse.testing import random_features

safetensors.torch.save_file(random_features(classes=50, dim=16, samples=2_000), "features.safetensors")

# %% language="bash"
# PYTHONPATH=packages collapse measure features.safetensors --metrics overlap
