"""What a run of the benchmarks was asked for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        quick: Small sizes, few rounds.
        model: Folder of a model to collect, instead of a new GPT-Neo.
        text: Its text.
        chunk_length: Tokens of its chunks.
        batch_size: Chunks of its batches.
        model_args: Further arguments for loading it, as KEY=VALUE.
        against: Commit whose validation takes turns with this one's.
        classes: Classes of the pair sweep, instead of the usual sizes.
        dim: Its dimensions.
        compile: Compile the models that are trained on a GPU.
    """

    quick: bool = False
    model: str | None = None
    text: str | None = None
    chunk_length: int = 512
    batch_size: int = 4
    model_args: tuple[str, ...] = ()
    against: str | None = None
    classes: int | None = None
    dim: int | None = None
    compile: bool = False
