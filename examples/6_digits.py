# %% [markdown]
# # Neural collapse of an image classifier
#
# We train a small network on scikit-learn's digits, far past the moment when it makes no more errors on the training
# images, and measure it on the way. This is the setting in which neural collapse was found (Papyan, Han & Donoho
# 2020). Replace the images and the network by your own.

# %%
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
train, test = torch.utils.data.random_split(data, [1437, 360])
model = nn.Sequential(
    *(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU()),
    *(nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU()),
    nn.Linear(128, 10),
)
untrained = copy.deepcopy(model)

# %% [markdown]
# The monitor reads the input of the last layer: C = 10 classes in d = 128 dimensions. After some of the epochs, `run`
# collects the training images, and `compute` measures them. NC4, loss and accuracy are those of its `validation`
# images: we ask once for the training images and once for the test images.

# %%
import collapse

monitor = collapse.Monitor("nc1,nc2,nc3,nc4,val_loss,val_accuracy", classes=10).attach(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
batches, rows = DataLoader(train, batch_size=64, shuffle=True), []
for epoch in range(101):
    if epoch in (0, 1, 2, 5, 10, 20, 35, 50, 70, 100):
        monitor.reset()
        monitor.run(DataLoader(train, batch_size=500))
        for name, subset in {"test": test, "training": train}.items():
            monitor.compute(validation=DataLoader(subset, batch_size=500))
            rows.append(monitor.to_row(f"{name} images", step=epoch * len(batches)))
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
results = collapse.Results(rows)
collapse.draw("training", results)

# %% [markdown]
# NC1 can also be measured on the images of `validation`, with their own class means. `covariance_ratio` is the
# classical form, tr(Σ_W Σ_B⁺)/C; `cdnv_ratio` compares the variance within classes with the distances of their means.

# %%
collapse.plot(results, ["val_nc1.covariance_ratio", "val_nc1.cdnv_ratio"], against="step")

# %% [markdown]
# The numbers of the training images, from the random network of step 0 on:

# %%
names = ["nc1.covariance_ratio", "nc1.cdnv_ratio", "nc2.equinormness", "nc2.interference_std", "nc3.self_duality"]
names += ["nc4.agreement", "val_accuracy"]
frame = results.frame().query("model == 'training images'").set_index("step")[names]
frame.round(4)

# %% [markdown]
# - **NC1**: the network makes no more errors after five epochs, but its classes go on shrinking, by another factor of
#   ten or more.
# - **NC2**: the class means come close to a simplex, which is possible because C ≤ d + 1. Their lengths differ by about
#   1 %, and their cosines by about 0.04 from −1/9. They do not reach it: `nc2.interference_std` hardly falls in the
#   second half.
# - **NC3 and NC4** are nearly 1: the rows of the last layer point along the class means, and the network predicts the
#   class of the nearest mean.
# - **On the test images** NC1 falls less, as Hui, Belkin & Nakkiran (2022) found.

# %% [markdown]
# ## Images of another kind
#
# NC5 says that other images become orthogonal to the class means (Ammar et al. 2024). Here they are the digits with
# shuffled pixels. The mean |cosine| with the class means falls, but not to 0.

# %%
pixels, targets = data.tensors
shuffled = pixels[:, torch.randperm(64)]
for name, network in {"untrained": untrained, "trained": model}.items():
    body, head = network.eval()[:-1], network[-1]
    with torch.no_grad():
        digits, others = (collapse.collect_arrays(body(each), targets, head.weight) for each in (pixels, shuffled))
    row = collapse.measure(digits, metrics="nc5", ood_text=others)
    print(f"{name}: {row['nc5.ood_orthogonality']:.2f}")

# %% [markdown]
# ## The report
#
# The values of the last step, checked:

# %%
first, last = frame.iloc[0], frame.iloc[-1]
assert last["val_accuracy"] == 1
assert last["nc1.cdnv_ratio"] <= first["nc1.cdnv_ratio"] / 10
assert last["nc3.self_duality"] >= 0.9
assert last["nc4.agreement"] >= 0.99

# %% [markdown]
# A page with all figures and tables, to open in a browser:

# %%
collapse.report(results, "report.html")
