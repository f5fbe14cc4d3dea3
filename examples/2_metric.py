# %% [markdown]
# # A metric of your own
#
# A metric is a function. The names of its parameters say what it needs, as with pytest's fixtures: `counts`, `means`,
# `variances`, `classifier`, `centred_means`, … (`collapse metrics --names` lists them). It reads a store, so the model
# is not run again. Here the classes are made from random numbers; a store of a model works the same way.

# %%
import torch

import collapse
from collapse.testing import LawBroken, check_metric, random_features, value

made = random_features(classes=300, dim=32, samples=20_000)
store = collapse.collect_arrays(
    made["train_features"],
    made["train_labels"],
    made["classifier"],
    validation_features=made["validation_features"],
    validation_labels=made["validation_labels"],
)
store

# %% [markdown]
# ## A number
#
# How much longer is the longest class mean than the shortest? At full collapse all have one length, so `towards=0`.


# %%
@collapse.metric("mine.log_norm_range", towards=0)
def log_norm_range(norms):
    """Log of the ratio of the longest to the shortest centred class mean."""
    return (norms.max() / norms.min()).log()


collapse.measure(store, metrics=[log_norm_range])

# %% [markdown]
# `check_metric` tests what every built-in metric must obey: the value does not change when embeddings are scaled,
# shifted or rotated, when classes are renumbered, in float32, and so on. A metric that declares something else than
# it does is refused, with the numbers.

# %%
check_metric(log_norm_range)


@collapse.metric("mine.mean_norm")
def mean_norm(norms):
    """Mean length of the centred class means, wrongly declared as independent of scale."""
    return norms.mean()


try:
    check_metric(mean_norm)
except LawBroken as broken:
    print(broken)

# %% [markdown]
# The declaration `@collapse.metric("mine.mean_norm", scale=1)` would be right.
#
# ## A value per class
#
# `class_metric` returns one value for every class; measures such as `Mean` reduce them to numbers.


# %%
@collapse.class_metric(collapse.Mean("mine.signal_to_noise", towards=torch.inf))
def signal_to_noise(norms, variances):
    """Length of a centred class mean over the standard deviation of the class."""
    return norms / variances.sqrt()


collapse.measure(store, metrics=[signal_to_noise, log_norm_range])

# %% [markdown]
# The values themselves, here against the number of samples of each class:

# %%
import altair as alt
import pandas as pd

s = store.statistics()
frame = pd.DataFrame({"samples": s.counts, "signal to noise": value(signal_to_noise, s)})
alt.Chart(frame, width=420, height=240).mark_circle().encode(
    alt.X("samples", scale={"zero": False}), alt.Y("signal to noise", scale={"zero": False})
)

# %% [markdown]
# A file with such functions is a plugin:
#
#     collapse -p mine.py measure stores/a --metrics mine
#
# [Plugins](../docs/guides/plugins.md) has the rest, and [example-plugin](../docs/example-plugin) is a package to copy.
